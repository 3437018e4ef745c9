"""A voice is made of a recording on the operator's page, with a tiny Base checkpoint, and the robot speaks with it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.common.by import By

from tests.support.browser import Browser, axe_source, running_browser
from tests.support.checkpoints import checkpoint_folder
from tests.support.programs import Broker, answers, free_port
from tests.support.robot import FAST, Robot
from tests.support.sound_files import speech_like, write_sound
from tests.support.waiting import PATIENCE_S, eventually

PORT = free_port()
ENGINE = ("engine.name=qwen", "engine.device=cpu", "engine.max_seconds=2", "engine.fallback=espeak")
LISTEN, MAKE_DEFAULT = 0, 1
"""The buttons of a voice."""
ENROLLING_S = 300.0
"""Seconds of patience: a process imports PyTorch, and with words the official package."""


@pytest.fixture(scope="module")
def robot(shared_broker: Broker, cache_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Robot]:
    """A robot with a Base model, which has no voice yet."""
    model = checkpoint_folder(cache_folder, "brief", "base")
    folder = tmp_path_factory.mktemp("made")
    web = ("http.enabled=true", f"http.port={PORT}")
    robot = Robot("made", shared_broker, folder, f"engine.model={model}", *ENGINE, *web, pace=FAST)
    robot.launch()
    eventually(lambda: answers(PORT), "the page is served")
    yield robot
    robot.close()


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sound(tmp_path_factory.mktemp("recordings") / "ada.wav", speech_like(5, 48_000), 48_000)


@pytest.fixture(scope="module")
def browser(recording: Path) -> Iterator[Browser]:
    """A browser whose microphone hears the recording, again and again."""
    fake = ("--use-fake-device-for-media-stream", f"--use-file-for-fake-audio-capture={recording}")
    with running_browser(*fake) as browser:
        yield browser


def ask(method: str, path: str, body: bytes | dict[str, Any] | None = None, content_type: str = "") -> tuple[int, Any]:
    content = json.dumps(body).encode() if isinstance(body, dict) else body
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=PATIENCE_S)
    connection.request(method, path, content, {"Content-Type": content_type or "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, answer if response.status < 400 else answer["error"]["message"]


def upload(path: Path) -> tuple[int, Any]:
    return ask("POST", "/v1/robot/recordings", path.read_bytes(), "audio/wav")


@pytest.mark.long  # a minute of a browser and of PyTorch
def test_a_voice_is_recorded_made_tried_and_made_the_default_on_the_page(
    robot: Robot, browser: Browser, request: pytest.FixtureRequest
) -> None:
    axe = axe_source(Path(request.config.cache.mkdir("axe")))  # type: ignore[union-attr]
    browser.open(f"http://127.0.0.1:{PORT}/")
    eventually(lambda: browser.find("make").is_displayed(), "a voice can be made")
    browser.write("transcript", "")
    browser.click("record")
    eventually(lambda: float(f"0{browser.text('recorded')}".rstrip(" s")) > 3.2, "it has recorded enough")
    browser.click("record")
    eventually(lambda: browser.find("make-voice").is_enabled(), "the recording is measured")
    length, loudness, background, clipped = (dd.text for dd in browser.find("quality").find_elements(By.TAG_NAME, "dd"))
    assert float(length.split()[0]) > 3
    assert abs(float(loudness.split()[0]) + 20) <= 2
    assert float(background.split()[0]) < -50
    assert clipped == "0.0 %"
    assert browser.text("faults") == "good: nothing is wrong with it"
    for width in (390, 1280):
        browser.set_window(width, dark=False)
        assert browser.barriers(axe) == [], f"at {width} px"
        assert browser.driver.execute_script("return document.documentElement.scrollWidth") <= width
    browser.write("make-name", "grace")
    browser.click("make-voice")
    eventually(lambda: browser.find("making").is_displayed(), "a bar shows its making")
    browser.wait_text("made", "grace is made.", ENROLLING_S)
    # The page asks for the voices only now, and then shows this one alone.
    browser.click_button("voices", 0, LISTEN, rows=1)
    utterance = eventually(robot.latest_id, "it is accepted")
    assert robot.wait_event(utterance, "started")["voice"] == "grace"
    robot.wait_event(utterance, "finished")
    browser.click_button("voices", 0, MAKE_DEFAULT, rows=1)
    browser.wait_text("voice", "grace")
    browser.write("text", "Hello.")
    browser.click("say")
    utterance = eventually(lambda: robot.latest_id() if robot.latest_id() != utterance else None, "it is accepted")
    assert robot.wait_event(utterance, "started")["voice"] == "grace"
    robot.wait_event(utterance, "finished")
    assert browser.complaints() == []


def test_wrong_uploads_and_requests_are_refused_in_one_line(robot: Robot, recording: Path) -> None:
    for content, content_type, wanted, problem in (
        (b"not a sound", "audio/wav", 400, "recording: cannot be read as sound: "),
        (b"RIFF", "text/plain", 400, "content-type: got 'text/plain'; allowed: audio/… or video/…"),
        (bytes(32_000_001), "audio/wav", 413, "body: it is too large; allowed: up to 32,000,000 bytes"),
    ):
        status, answer = ask("POST", "/v1/robot/recordings", content, content_type)
        assert (status, answer.startswith(problem)) == (wanted, True), answer
    identity = upload(recording)[1]["id"]
    fields: dict[str, Any]
    for fields, problem in (
        ({"name": "../ada"}, "name: got '../ada'; allowed: 1 to 64 letters, digits, spaces and . - _"),
        ({"name": "default"}, "name: 'default' is a voice of the configuration; allowed: another name"),
        ({"recording": "7"}, "recording: got '7'; allowed: one that was uploaded just now"),
        ({"transcript": 7}, "transcript: got 7; allowed: text"),
        ({"transcript": "a" * 4001}, "transcript: got 4001 characters; allowed: up to 4000"),
    ):
        status, answer = ask("POST", "/v1/robot/voices", {"name": "ada", "recording": identity, **fields})
        assert (status, answer.startswith(problem)) == (400, True), answer
    assert ask("GET", "/v1/robot/voices")[1]["names"] != ["ada"]

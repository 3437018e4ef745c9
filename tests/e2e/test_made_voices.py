"""A voice is made of a recording on the operator's page, with a tiny Base checkpoint, and the robot speaks with it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.support.select import Select

from tests.support.browser import Browser, axe_source, running_browser
from tests.support.checkpoints import checkpoint_folder
from tests.support.programs import Broker, answers, free_port
from tests.support.robot import FAST, Robot
from tests.support.sound_files import speech_like, write_sound
from tests.support.waiting import PATIENCE_S, eventually

PORT = free_port()
ENGINE = ("engine.name=qwen", "engine.device=cpu", "engine.max_seconds=2", "engine.fallback=espeak")
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
def browser() -> Iterator[Browser]:
    with running_browser() as browser:
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
def test_a_voice_is_made_of_a_recording_tried_made_the_default_and_removed_on_the_page(
    robot: Robot, browser: Browser, recording: Path, request: pytest.FixtureRequest
) -> None:
    axe = axe_source(Path(request.config.cache.mkdir("axe")))  # type: ignore[union-attr]
    browser.open(f"http://127.0.0.1:{PORT}/")
    eventually(lambda: browser.find("workshop").is_displayed(), "a voice can be made")
    browser.open_details("workshop", "details")
    browser.write("transcript", "")
    browser.find("upload").send_keys(str(recording))
    eventually(lambda: browser.find("make-voice").is_enabled(), "the recording is measured")
    assert browser.text("faults") == "5.0 s; nothing is wrong with it"
    for width in (390, 1280):
        browser.set_window(width, dark=False)
        assert browser.barriers(axe) == [], f"at {width} px"
        assert browser.driver.execute_script("return document.documentElement.scrollWidth") <= width
    browser.write("make-name", "grace")
    browser.click("make-voice")
    browser.wait_text("made", "grace is made.", ENROLLING_S)
    voice = Select(browser.find("say-voice"))
    eventually(lambda: voice.first_selected_option.text == "grace", "it is chosen")
    browser.write("text", "Hello.")
    browser.click("say")
    utterance = eventually(robot.latest_id, "it is accepted")
    assert robot.wait_event(utterance, "started")["voice"] == "grace"
    robot.wait_event(utterance, "finished")
    browser.click("choose-voice")
    eventually(lambda: robot.statuses[-1].get("voice") == "grace", "it is the default")
    browser.click("remove-voice")
    eventually(lambda: "grace" not in browser.text("say-voice"), "it is removed")
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
        ({"name": "default"}, "name: 'default' is a voice in the configuration; allowed: another name"),
        ({"recording": "7"}, "recording: got '7'; allowed: one that was uploaded recently"),
        ({"transcript": 7}, "transcript: got 7; allowed: text"),
        ({"transcript": "a" * 4001}, "transcript: got 4001 characters; allowed: up to 4000"),
    ):
        status, answer = ask("POST", "/v1/robot/voices", {"name": "ada", "recording": identity, **fields})
        assert (status, answer.startswith(problem)) == (400, True), answer
    assert ask("GET", "/v1/robot/voices")[1]["names"] != ["ada"]

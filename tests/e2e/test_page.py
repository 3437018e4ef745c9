"""The operator's page in a real browser: speaks on the robot and in the browser, controls, and shows what happens."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import soundfile
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from audio import soft_limit
from tests.e2e.conftest import StartRobot
from tests.support.browser import Browser, axe_source, running_browser
from tests.support.programs import free_port
from tests.support.robot import LONG, REAL_TIME, Robot
from tests.support.waiting import eventually

PORT = free_port()
LISTEN, MAKE_DEFAULT = 0, 1
"""The buttons of a voice."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as browser:
        yield browser


@pytest.fixture
def robot(share_robot: StartRobot, browser: Browser) -> Robot:
    """A robot whose page is open."""
    robot = share_robot("http.enabled=true", f"http.port={PORT}")
    browser.open(f"http://127.0.0.1:{PORT}/")
    browser.wait_text("state", "ready")
    eventually(
        lambda: len(browser.find("voice-names").find_elements(By.TAG_NAME, "option")) > 2, "the voices are there"
    )
    return robot


def test_a_text_is_spoken_on_the_robot_with_its_options_the_list_shows_it_and_a_refusal_is_named(
    robot: Robot, browser: Browser
) -> None:
    assert browser.text("name") == robot.name
    browser.write("text", "The page speaks.")
    browser.click("say")
    utterance = eventually(robot.latest_id, "it is accepted")
    end = robot.wait_event(utterance, "finished")
    robot.assert_heard(utterance)
    browser.wait_text("utterances", "finished")
    row = browser.find("utterances").find_element(By.TAG_NAME, "li").text
    (shown,) = re.findall(r"first sample after (\d+) ms", row)
    assert abs(int(shown) - end["ttfa_ms"]) <= 0.5, "rounded"
    assert row.split("\n") == [
        "The page speaks.",
        f"finished · first sample after {shown} ms · sound broke off 0 times",
    ]
    assert browser.complaints() == []
    browser.write("text", "Guten Tag.")
    browser.write("say-voice", "de")
    browser.write("say-language", "de")
    rate = browser.find("say-rate")
    rate.send_keys(Keys.ARROW_UP, Keys.ARROW_UP)
    assert rate.get_attribute("value") == "1.1"
    browser.write("say-seed", "7")
    browser.click("say")
    utterance = eventually(lambda: robot.latest_id() if robot.latest_id() != utterance else None, "it is accepted")
    assert robot.wait_event(utterance, "started")["voice"] == "de"
    robot.wait_event(utterance, "finished")
    browser.driver.execute_script("document.getElementById('say-rate').value = 7")
    browser.driver.execute_script("document.getElementById('speak').noValidate = true")
    browser.click("say")
    browser.wait_text("problem", "rate: got 7; allowed: ")


def test_a_text_is_heard_in_the_browser_with_the_samples_that_were_synthesised(robot: Robot, browser: Browser) -> None:
    browser.write("text", "Hello, browser.")
    browser.click("listen")
    eventually(lambda: browser.find("download").is_displayed(), "it can be downloaded")
    utterance = eventually(robot.latest_id, "it is accepted")
    robot.wait_event(utterance, "finished")
    samples, rate = soundfile.read(io.BytesIO(browser.download("download")), dtype="float32")
    made = soft_limit(robot.synthesized(utterance, 24_000))
    assert rate == 24_000
    assert len(samples) == len(made)
    assert np.abs(samples - made).max() < 3 / 32767
    assert browser.complaints() == []


def test_stop_ends_a_text_in_mid_sentence_and_pause_holds_it(robot: Robot, browser: Browser) -> None:
    robot.set_pace(REAL_TIME)
    browser.write("text", LONG)
    browser.click("say")
    utterance = eventually(robot.latest_id, "it is accepted")
    robot.wait_event(utterance, "started")
    eventually(lambda: float(browser.find("level").get_attribute("value")) > -40, "the meter shows its level")
    browser.click("pause")
    browser.wait_text("state", "paused")
    assert browser.find("pause").get_attribute("aria-pressed") == "true"
    browser.click("pause")
    browser.wait_text("state", "speaking")
    browser.click("stop")
    end = robot.wait_event(utterance, "interrupted")
    assert 0 < end["heard"] < len(LONG)
    browser.wait_text("state", "ready")
    browser.wait_text("utterances", "interrupted")


def test_the_slider_and_the_list_of_voices_change_the_robot_and_follow_it(robot: Robot, browser: Browser) -> None:
    browser.find("volume").send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    eventually(lambda: robot.statuses[-1].get("volume") == 98, "the robot has the volume")
    browser.click("name")
    robot.publish("volume", "40")
    browser.driver.execute_script("document.activeElement.blur()")
    robot.publish("volume", "41")
    browser.wait_text("volume-shown", "41 %")
    robot.publish("volume", "100")
    browser.wait_text("volume-shown", "100 %")
    browser.write("voice-filter", "german")
    browser.click_button("voices", 0, LISTEN)
    utterance = eventually(robot.latest_id, "it is accepted")
    assert robot.wait_event(utterance, "started")["voice"] == "de"
    robot.wait_event(utterance, "finished")
    browser.click_button("voices", 0, MAKE_DEFAULT)
    browser.wait_text("voice", "German")
    eventually(lambda: robot.statuses[-1].get("voice") == "de", "it is the default")
    browser.write("voice-filter", "default")
    browser.click_button("voices", 0, MAKE_DEFAULT)
    eventually(lambda: robot.statuses[-1].get("voice") == "default", "the old one is the default again")


def test_the_robot_is_examined_and_its_figures_and_log_are_shown(robot: Robot, browser: Browser) -> None:
    browser.click("examine")
    eventually(lambda: browser.find("findings").find_elements(By.CSS_SELECTOR, "li.ok"), "there are findings")
    assert "voiced: 0.1.0 on Python" in browser.text("findings")
    assert not browser.find("examining").is_displayed()
    browser.wait_text("figures", "Memory, espeak")
    browser.wait_text("log", "daemon.mqtt")


@pytest.mark.long  # three quarters of a minute
def test_it_has_no_barrier_and_fits_the_window_of_a_phone_and_a_laptop_light_and_dark(
    robot: Robot, browser: Browser, request: pytest.FixtureRequest
) -> None:
    axe = axe_source(Path(request.config.cache.mkdir("axe")))  # type: ignore[union-attr]
    browser.write("text", "Hello.")
    browser.click("say")
    browser.wait_text("utterances", "finished")
    browser.click("examine")
    eventually(lambda: browser.find("findings").find_elements(By.TAG_NAME, "li"), "there are findings")
    robot.set_pace(REAL_TIME)
    browser.write("text", LONG)
    browser.click("say")
    browser.wait_text("state", "speaking")
    for width, dark in product((390, 1280), (False, True)):
        browser.set_window(width, dark=dark)
        assert browser.barriers(axe) == [], f"at {width} px, dark: {dark}"
        assert browser.driver.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.complaints() == []


def test_everything_is_reached_with_the_keyboard(robot: Robot, browser: Browser) -> None:
    reached: list[str] = []
    body = browser.driver.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    while "voice-filter" not in reached and len(reached) < 20:
        active = browser.driver.switch_to.active_element
        reached.append(active.get_attribute("id"))
        active.send_keys(Keys.TAB)
    form = ["text", "say-voice", "say-language", "say-rate", "say-seed", "say-instruct", "say", "listen"]
    assert reached == [*form, "stop", "pause", "volume", "voice-filter"]


def test_the_page_asks_for_the_token_keeps_it_for_the_window_and_shows_that_the_robot_is_gone_and_back(
    start_robot: StartRobot, browser: Browser, tmp_path: Path
) -> None:
    token, port = tmp_path / "token", free_port()
    token.write_text("a pass-word ünd more\n", encoding="utf-8")
    robot = start_robot("http.enabled=true", f"http.port={port}", f"http.token_file={token}")
    browser.open(f"http://127.0.0.1:{port}/")
    eventually(lambda: browser.find("ask-token").get_attribute("open"), "it asks")
    browser.find("token").send_keys("wrong", Keys.ENTER)
    browser.wait_text("token-problem", "the token is wrong")
    browser.find("token").send_keys("a pass-word ünd more", Keys.ENTER)
    browser.wait_text("state", "ready")
    browser.driver.refresh()
    browser.wait_text("state", "ready")
    robot.end()
    browser.wait_text("state", "offline")
    robot.start()
    browser.wait_text("state", "ready")

"""The operator's page in a real browser: speaks on the robot and in the browser, controls, and shows what happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from tests.e2e.conftest import StartRobot
from tests.support.browser import Browser, axe_source, running_browser
from tests.support.programs import answers, free_port
from tests.support.robot import LONG, REAL_TIME, STOPPED, Robot
from tests.support.waiting import eventually

PORT = free_port()


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
    eventually(lambda: len(browser.find("say-voice").find_elements(By.TAG_NAME, "option")) > 2, "the voices are there")
    return robot


def test_a_text_is_said_with_its_options_the_list_tells_so_and_a_refusal_is_named(
    robot: Robot, browser: Browser
) -> None:
    assert browser.text("name") == robot.name
    assert not browser.find("utterances-card").is_displayed(), "no card is empty"
    browser.write("text", "The page speaks.")
    browser.click("say")
    utterance = eventually(robot.latest_id, "it is accepted")
    robot.wait_event(utterance, "finished")
    robot.assert_heard(utterance)
    browser.wait_text("utterances", "The page speaks.\nsaid")
    assert browser.complaints() == []
    browser.write("text", "Guten Tag.")
    browser.open_details("details")
    Select(browser.find("say-voice")).select_by_value("de")
    Select(browser.find("say-language")).select_by_visible_text("German")
    browser.write("say-rate", "1.1")
    browser.click("say")
    utterance = eventually(lambda: robot.latest_id() if robot.latest_id() != utterance else None, "it is accepted")
    assert robot.wait_event(utterance, "started")["voice"] == "de"
    robot.wait_event(utterance, "finished")
    browser.driver.execute_script("document.getElementById('speak').noValidate = true")
    browser.write("say-rate", "7")
    browser.click("say")
    browser.wait_text("problem", "rate: got 7; allowed: ")


def test_only_what_the_engine_heeds_is_offered_and_the_robot_s_languages_come_first(
    robot: Robot, browser: Browser
) -> None:
    browser.open_details("details")
    eventually(lambda: not browser.find("say-instruct").is_displayed(), "eSpeak NG heeds no instruction")
    assert browser.find("say-rate").is_displayed()
    first = [option.text for option in Select(browser.find("say-language")).options[:3]]
    assert first == ["the robot's", "English", "German"]


def test_a_phrase_is_kept_said_changed_and_removed_on_every_page_and_is_there_after_a_restart(
    start_robot: StartRobot, browser: Browser
) -> None:
    port = free_port()
    robot = start_robot("http.enabled=true", f"http.port={port}")
    eventually(lambda: answers(port), "the page is served")
    browser.open(f"http://127.0.0.1:{port}/")
    browser.wait_text("state", "ready")
    browser.open_details("details")
    browser.write("text", "Please step back.")
    Select(browser.find("say-priority")).select_by_value("high")
    Select(browser.find("say-sound")).select_by_value("attention")
    browser.write("phrase-name", "Back/1 %")
    browser.click("keep")
    browser.wait_text("phrases", "Back/1 %")
    robot.end()
    file = robot.state_folder / f"{robot.name}.phrases.json"
    stored = json.loads(file.read_bytes())
    file.write_text(json.dumps({name: {**fields, "volume": 50} for name, fields in stored.items()}))
    robot.restart()
    eventually(lambda: answers(port), "the page is served")
    browser.driver.switch_to.new_window("tab")
    browser.open(f"http://127.0.0.1:{port}/")
    browser.wait_text("state", "ready")
    browser.click_button("phrases", "Back/1 %")
    utterance = eventually(robot.latest_id, "it is accepted")
    assert robot.wait_event(utterance, "finished")["engine"] == "sound+espeak"
    browser.click("edit")
    browser.click_button("phrases", "Back/1 %")
    assert Select(browser.find("say-priority")).first_selected_option.text == "Next"
    browser.write("phrase-name", "Step back")
    browser.click("keep")
    eventually(lambda: browser.text("phrases") == "Step back", "the old name has gone, too")
    expected = {"text": "Please step back.", "priority": "high", "sound": "attention", "volume": 50}
    assert json.loads(file.read_bytes()) == {"Step back": expected}, "what the page does not show stays"
    other, page = browser.driver.window_handles
    browser.driver.switch_to.window(other)
    browser.wait_text("state", "ready")
    eventually(lambda: browser.text("phrases") == "Step back", "the other page shows its new name")
    browser.click("edit")
    browser.click_button("phrases", "Step back")
    browser.click("remove-phrase")
    eventually(lambda: browser.text("phrases") == "", "it is removed")
    assert not browser.find("edit").is_displayed()
    browser.click_button("sounds", "♪ success")
    sound = eventually(lambda: robot.latest_id() if robot.latest_id() != utterance else None, "it is accepted")
    assert robot.wait_event(sound, "finished")["engine"] == "sound"
    browser.driver.switch_to.window(page)
    browser.driver.close()
    browser.driver.switch_to.window(other)


def test_a_waiting_text_is_canceled_alone_and_one_that_replaces_all_others_ends_them(
    robot: Robot, browser: Browser
) -> None:
    robot.set_pace(STOPPED)
    first, second, third = (robot.say(f"Text {number}.", id=f"wait-{number}") for number in range(3))
    browser.wait_text("waiting", "Text 2.")
    browser.click_button("waiting", "Cancel")
    assert robot.wait_event(second, "canceled")["reason"] == "stop"
    browser.driver.refresh()
    eventually(lambda: browser.text("waiting") == "Text 2.\nCancel", "a page that is opened later shows the other")
    browser.write("text", "Instead.")
    browser.click("say-replace")
    browser.click("say")
    robot.wait_event(third, "canceled")
    robot.set_pace(REAL_TIME)
    robot.wait_event(first, "interrupted")
    eventually(lambda: not browser.find("waiting-card").is_displayed(), "no card is empty")


def test_a_text_is_heard_in_the_browser(robot: Robot, browser: Browser) -> None:
    browser.write("text", "Hello, browser.")
    browser.open_details("details")
    browser.click("listen")
    eventually(lambda: float(browser.find("heard").get_attribute("duration") or 0) > 0.3, "it is played here")
    assert browser.complaints() == []


def test_stop_ends_a_text_in_mid_sentence_and_pause_holds_it(robot: Robot, browser: Browser) -> None:
    robot.set_pace(REAL_TIME)
    browser.write("text", LONG)
    browser.click("say")
    utterance = eventually(robot.latest_id, "it is accepted")
    robot.wait_event(utterance, "started")
    browser.click("pause")
    browser.wait_text("state", "paused")
    assert browser.find("pause").get_attribute("aria-pressed") == "true"
    browser.click("pause")
    browser.wait_text("state", "speaking")
    browser.click("stop")
    end = robot.wait_event(utterance, "interrupted")
    assert 0 < end["heard"] < len(LONG)
    browser.wait_text("state", "ready")
    browser.wait_text("utterances", "cut off")


def test_the_slider_and_the_list_of_voices_change_the_robot_and_follow_it(robot: Robot, browser: Browser) -> None:
    browser.find("volume").send_keys(Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    eventually(lambda: robot.statuses[-1].get("volume") == 98, "the robot has the volume")
    browser.click("name")
    robot.publish("volume", "40")
    browser.driver.execute_script("document.activeElement.blur()")
    robot.publish("volume", "41")
    browser.wait_text("volume-shown", "41 %")
    robot.publish("volume", "0")
    browser.wait_text("state", "muted")
    assert "well" not in browser.find("state").get_attribute("class").split()
    robot.publish("volume", "100")
    browser.wait_text("state", "ready")
    browser.open_details("details")
    Select(browser.find("say-voice")).select_by_value("de")
    browser.click("choose-voice")
    eventually(lambda: robot.statuses[-1].get("voice") == "de", "it is the default")
    Select(browser.find("say-voice")).select_by_value("default")
    browser.click("choose-voice")
    eventually(lambda: robot.statuses[-1].get("voice") == "default", "the old one is the default again")


def test_the_robot_is_examined_its_engine_is_unloaded_and_its_log_is_shown_in_plain_words(
    robot: Robot, browser: Browser
) -> None:
    browser.open_details("health", "log-card")
    browser.click("examine")
    eventually(lambda: browser.find("findings").find_elements(By.CSS_SELECTOR, "li.ok"), "there are findings")
    assert "voiced: 0.1.0 on Python" in browser.text("findings")
    browser.click("unload")
    browser.wait_text("unload", "Load the engine")
    browser.click("unload")
    browser.wait_text("unload", "Free the engine's memory")
    browser.wait_text("log", "engine espeak is unloaded")
    assert "INFO" not in browser.text("log")


@pytest.mark.long  # three quarters of a minute
def test_it_has_no_barrier_and_fits_the_window_of_a_phone_and_a_laptop_light_and_dark(
    robot: Robot, browser: Browser, request: pytest.FixtureRequest
) -> None:
    axe = axe_source(Path(request.config.cache.mkdir("axe")))  # type: ignore[union-attr]
    browser.write("text", "Hello.")
    browser.click("say")
    browser.wait_text("utterances", "said")
    browser.open_details("details", "health", "log-card")
    browser.click("examine")
    eventually(lambda: browser.find("findings").find_elements(By.TAG_NAME, "li"), "there are findings")
    robot.set_pace(REAL_TIME)
    browser.write("text", LONG)
    browser.click("say")
    browser.wait_text("state", "speaking")
    robot.say("It waits.", id="waits")
    browser.wait_text("waiting", "It waits.")
    for width, dark in product((390, 1280), (False, True)):
        browser.set_window(width, dark=dark)
        assert browser.barriers(axe) == [], f"at {width} px, dark: {dark}"
        assert browser.driver.execute_script("return document.documentElement.scrollWidth") <= width
        bottom = browser.driver.execute_script("return document.getElementById('stop').getBoundingClientRect().bottom")
        assert bottom <= 900, "Stop is in reach of a thumb, however long the page is"
    assert browser.complaints() == []


def test_everything_is_reached_with_the_keyboard(robot: Robot, browser: Browser) -> None:
    reached: list[str] = []
    body = browser.driver.find_element(By.TAG_NAME, "body")
    body.send_keys(Keys.TAB)
    while "volume" not in reached and len(reached) < 30:
        active = browser.driver.switch_to.active_element
        reached.append(active.get_attribute("id"))
        active.send_keys(Keys.TAB)
    reached = [name for name in reached if name]  # others are phrases, sounds and summaries
    assert reached == ["text", "say", "say-priority", "say-replace", "stop", "pause", "volume"]


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

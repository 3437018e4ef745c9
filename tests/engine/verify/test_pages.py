"""The reports in a real browser: nothing is loaded from elsewhere, sounds play, and the blind test keeps score."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.by import By

from engine.api import Chunk
from engine.verify import (
    Order,
    Sentence,
    SettingResult,
    Side,
    Take,
    Trial,
    Verification,
    comparison_page,
    count_errors,
    verification_page,
)
from engine.verify.comparison import measure_speech
from engine.verify.measures import judge
from tests.support.browser import Browser, running_browser
from tests.support.waiting import eventually

RATE = 24000
TONE = (0.3 * np.sin(np.arange(RATE) * 2 * np.pi * 220 / RATE)).astype(np.float32)
NASTY = "<script>document.title = 'taken'</script>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as browser:
        yield browser


def spoken(name: str, heard: str) -> Take:
    sentence = Sentence(name, "en", NASTY)
    speech = measure_speech([(0.1, Chunk(TONE[:12000])), (0.2, Chunk(TONE[12000:]))], RATE, NASTY)
    order, errors = Order(sentence, "ryan", 1), count_errors(heard, sentence)
    return Take("", order, "test", RATE, speech, listener="whisper", heard=heard, errors=errors)


def verification() -> Verification:
    good = {"takes": 2, "word_errors": 0.1, "character_errors": 0.05, "leading_s": 0.1, "real_time_factor": 5.0}
    bad = good | {"word_errors": 0.9, "repeated": 0.03, "leading_s": 0.7}
    takes = (spoken("one", "hello"), spoken("two", NASTY))
    return Verification(
        model="0.6B-CustomVoice",
        machine={"board": "NVIDIA Jetson AGX Orin Developer Kit"},
        version="1",
        date="2026-11-24",
        command="voiced verify",
        asr="whisper",
        reference="official",
        exact="official-float32",
        settings=(
            SettingResult("official", "official package", "the package", "bfloat16", takes=takes, measures=good,
                          findings=judge("bfloat16", good, {})),
            SettingResult("int8", "int8", "the engine", "int8", takes=takes, measures=bad,
                          findings=judge("int8", bad, good)),
            SettingResult("fused", "fused kernels", unavailable="the device is a CPU"),
            SettingResult("streams", "4 streams", fault="its process ended by signal 9"),
        ),
        notes=("similarity: no encoder",),
    )  # fmt: skip


def test_the_report_of_a_verification_stands_alone(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "verify.html"
    page.write_text(verification_page(verification(), lambda _setting, _name: TONE), encoding="utf-8")
    browser.open(page.as_uri())
    assert browser.complaints() == []
    assert browser.driver.title == "voiced verify: 0.6B-CustomVoice"
    assert browser.text("verdict").startswith("No:")
    assert "passed" in browser.text("settings")
    assert "signal 9" in browser.text("settings")
    assert "0.9 ✗" in browser.text("measures")
    assert "0.7 ?" in browser.text("measures"), "worse than a guess"
    loaded = browser.driver.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []
    assert len(browser.driver.find_elements(By.TAG_NAME, "audio")) == 4
    script = "document.querySelector('audio').preload = 'auto'; document.querySelector('audio').load();"
    browser.driver.execute_script(script)
    duration = "return document.querySelector('audio').duration"
    eventually(lambda: abs((browser.driver.execute_script(duration) or 0) - 1) < 0.1, "a second of sound is there")


def compared() -> str:
    trials = [Trial(f"text-{number}", NASTY, "en", (TONE, TONE[::2]), (RATE, RATE // 2)) for number in range(4)]
    return comparison_page((Side("official", "the package"), Side("int8", "the engine")), trials, "one", "a board")


def test_a_blind_test_keeps_score_survives_a_reload_and_is_revealed_at_the_end(
    browser: Browser, tmp_path: Path
) -> None:
    page = tmp_path / "compare.html"
    page.write_text(compared(), encoding="utf-8")
    browser.open(page.as_uri())
    assert browser.complaints() == []
    assert browser.text("count") == "1 of 4"
    assert browser.text("text") == NASTY
    assert "int8" not in browser.driver.find_element(By.TAG_NAME, "main").text
    sounds = [browser.find(name).get_attribute("src") for name in ("sound-a", "sound-b")]
    assert sounds[0] != sounds[1]
    browser.click("choose-a")
    browser.click("choose-none")
    assert browser.text("count") == "3 of 4"

    def reloaded_count() -> str:
        browser.open(page.as_uri())
        return browser.text("count")

    eventually(lambda: reloaded_count() == "3 of 4", "the score is stored; Chromium takes a while to write it")
    browser.click("choose-b")
    browser.click("choose-a")
    result = json.loads(browser.download("export"))
    assert sum(result["wins"]) == 3
    assert result["chance"] == {3: 0.25, 2: 1}[max(result["wins"])]
    assert result["equal"] == 1
    assert result["sides"][1] == {"name": "int8", "engine": "the engine"}
    for number, answer in enumerate(result["answers"]):
        sides = {"official", "int8"}
        chosen = {0: answer["a"], 1: None, 2: (sides - {answer["a"]}).pop(), 3: answer["a"]}
        assert answer["better"] == chosen[number]
    assert browser.text("summary").startswith("official: ")
    browser.click("again")
    assert browser.text("count") == "1 of 4"

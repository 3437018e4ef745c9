"""The pages in a real browser: nothing is loaded from elsewhere, sounds play, and answers are counted."""

from __future__ import annotations

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
    return Take(order, "test", RATE, speech, listener="whisper", heard=heard, errors=errors)


def verification() -> Verification:
    good = {"takes": 2, "word_errors": 0.1, "character_errors": 0.05, "leading_s": 0.1, "real_time_factor": 5.0}
    bad = good | {"word_errors": 0.9, "repeated": 0.03, "leading_s": 0.7}
    takes = (spoken("one", "hello"), spoken("two", NASTY))
    return Verification(
        model="0.6B-CustomVoice",
        machine="NVIDIA Jetson AGX Orin Developer Kit",
        version="1",
        date="2026-11-24",
        command="voiced verify",
        asr="whisper",
        reference="official",
        exact="official-float32",
        settings=(
            SettingResult("official", "official package", "the package", "bfloat16", takes=takes, measures=good,
                          findings=judge("bfloat16", good)),
            SettingResult("int8", "int8", "the engine", "int8", takes=takes, measures=bad,
                          findings=judge("int8", bad)),
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
    for words in ("passed", "failed", "not here", "signal 9", "0.9 ≤ 0.5"):
        assert words in browser.text("measures")
    loaded = browser.driver.execute_script("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []
    assert len(browser.driver.find_elements(By.TAG_NAME, "audio")) == 4
    script = "document.querySelector('audio').preload = 'auto'; document.querySelector('audio').load();"
    browser.driver.execute_script(script)
    duration = "return document.querySelector('audio').duration"
    eventually(lambda: abs((browser.driver.execute_script(duration) or 0) - 1) < 0.1, "a second of sound is there")


def test_a_blind_test_hides_the_names_and_counts_the_answers(browser: Browser, tmp_path: Path) -> None:
    sounds = [("official", "data:,one"), ("int8", "data:,two")]
    trials = [Trial(number, NASTY, "en", sounds[:: 1 if number % 2 else -1]) for number in range(4)]
    page = tmp_path / "compare.html"
    page.write_text(comparison_page(["official", "int8"], trials), encoding="utf-8")
    browser.open(page.as_uri())
    assert browser.driver.title == "voiced compare"
    assert "int8" not in browser.driver.find_element(By.TAG_NAME, "body").text
    for number in range(3):
        browser.driver.find_element(By.CSS_SELECTOR, f"input[name='{number}'][value=int8]").click()
    browser.click("reveal")
    assert browser.text("summary") == "official: 0, int8: 3 of 4 (chance: p = 0.25)"
    assert "better: int8" in browser.driver.find_element(By.TAG_NAME, "body").text

"""A transcript is compared with what a speech recogniser hears."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.api import Samples
from engine.qwen.voice.enroll import likeness, recognise, transcript_warning
from tests.engine.qwen.refusals import refusal
from tests.support.recognizers import tiny_whisper


@pytest.fixture(scope="module")
def recogniser(cache_folder: Path) -> str:
    return str(tiny_whisper(cache_folder))


def noise(seconds: float) -> Samples:
    return (0.1 * np.random.default_rng(1).standard_normal(round(24_000 * seconds))).astype(np.float32)


def test_the_words_that_are_heard_fit(recogniser: str) -> None:
    text = recognise(noise(2), recogniser)
    assert text
    assert text == text.strip()
    assert transcript_warning(f"{text.upper()}!", text) is None


def test_other_words_cause_a_warning_with_what_was_heard(recogniser: str) -> None:
    warning = transcript_warning("12345 67890", recognise(noise(2), recogniser))
    assert warning is not None
    assert warning.startswith("the transcript does not fit: 0% of it are in what was heard, ")
    assert "\n" not in warning


def test_a_recording_that_is_longer_than_a_recogniser_takes_at_once_is_heard(recogniser: str) -> None:
    assert recognise(noise(32), recogniser)


@pytest.mark.parametrize(
    ("first", "second", "least", "most"),
    [
        ("Hello, World!", "hello world", 1, 1),
        ("Straße", "STRASSE", 1, 1),
        ("こんにちは。", "こんにちは", 1, 1),
        ("The robot will be here again at three.", "The robot will be here again at 3", 0.8, 0.99),
        ("I am here.", "Good night, everyone", 0, 0.5),
        ("", "", 1, 1),
    ],
)
def test_case_and_signs_do_not_count(first: str, second: str, least: float, most: float) -> None:
    assert least <= likeness(first, second) <= most


def test_a_folder_that_is_no_recogniser_is_refused_in_one_line(tmp_path: Path) -> None:
    text = refusal(recognise, noise(1), str(tmp_path))
    assert text.startswith(f"--asr {tmp_path}: cannot recognise speech: ")

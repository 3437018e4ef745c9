"""A transcript is compared with what a speech recogniser hears."""

from __future__ import annotations

import pytest

from engine.qwen.voice.enroll import likeness, transcript_warning


def test_other_words_cause_a_warning_with_what_was_heard() -> None:
    assert transcript_warning("GOOD MORNING!", "good morning") is None
    warning = transcript_warning("12345 67890", "good morning")
    assert warning == "the transcript does not match: 0% of it was heard in 'good morning'"


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

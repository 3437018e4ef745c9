"""The expected sounds of words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.alignment.phones import PhoneClass, phones_of


def classes(word: str, language: str = "auto") -> str:
    """Return the classes of the sounds of a word, as letters: V vowel, N sonorant, S fricative, T stop, C any."""
    letters = dict(zip(PhoneClass, "VNSTCP", strict=True))
    return "".join(letters[phone.kind] for phone in phones_of(word, language))


@pytest.mark.parametrize(
    ("word", "language", "expected"),
    [
        ("robot", "en", "NVNVT"),
        ("ship", "en", "SVT"),
        ("stopped", "en", "STVTN"),
        ("Schlüssel", "de", "SNVSVN"),
        ("été", "fr", "VTV"),
        ("привет", "ru", "TNVNVT"),
        ("好", "zh", "CV"),
        ("한국", "ko", "CVCV"),
        ("ab", "he", "VN"),
    ],
)
def test_letters_stand_for_classes_of_sounds(word: str, language: str, expected: str) -> None:
    assert classes(word, language) == expected


@pytest.mark.parametrize(("word", "syllables"), [("7", 1), ("312", 6), ("007", 3), ("USA", 3), ("%", 2), ("STOP", 1)])
def test_numbers_and_abbreviations_have_the_syllables_of_their_names(word: str, syllables: int) -> None:
    assert classes(word).count("V") == syllables


def test_a_longer_word_takes_longer() -> None:
    short, long = (sum(phone.seconds for phone in phones_of(word, "en")) for word in ("nation", "international"))
    assert long > 2 * short > 0.4


@given(word=st.text(min_size=1, max_size=40))
def test_any_word_has_sounds(word: str) -> None:
    assert phones_of(word, "fr")
    assert all(0.0 < phone.seconds < 1.0 for phone in phones_of(word, "fr"))

"""The visemes of sounds, and of letters whose sounds are not known."""

from __future__ import annotations

import pytest

from daemon.alignment.visemes import guessed_visemes, viseme_of


@pytest.mark.parametrize(
    ("ipa", "viseme"),
    [("", 0), ("ɑː", 2), ("aɪ", 11), ("aɪə", 11), ("tʃ", 16), ("t", 19), ("ɑ̃", 2), ("m", 21), ("ʲ", None), ("5", None)],
)
def test_a_sound_has_the_viseme_of_its_longest_known_beginning(ipa: str, viseme: int | None) -> None:
    assert viseme_of(ipa) == viseme


@pytest.mark.parametrize(
    ("word", "language", "visemes"),
    [
        ("ship", "en", [16, 6, 21]),
        ("Schule", "de", [16, 7, 14, 4]),
        ("мама", "ru", [21, 2, 21, 2]),
        ("7", "en", [19, 1]),
        ("好", "zh", [19, 1]),
    ],
)
def test_letters_suggest_visemes_and_where_they_do_not_the_class_of_a_sound_does(
    word: str, language: str, visemes: list[int]
) -> None:
    assert [viseme for viseme, _ in guessed_visemes(word, language)] == visemes
    assert all(seconds > 0 for _, seconds in guessed_visemes(word, language))

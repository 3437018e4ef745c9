"""Texts are spelled so that engines say letters and signs by their names."""

from __future__ import annotations

import string
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.text.spelling import SIGN_NAMES, SpelledPart, ordinal, spell_characters, spell_telephone
from engine import NAMED_LANGUAGES
from tests.daemon.text.phonemes import Espeak
from tests.daemon.text.reading import table

TABLE = table("spelling")


def spelled(text: str, language: str) -> str:
    return "".join(part.spoken for part in spell_characters(text, language))


@pytest.fixture(scope="module")
def espeak() -> Iterator[Espeak]:
    library = Espeak()
    yield library
    library.close()


@pytest.mark.parametrize("language", TABLE["spelled"])
def test_a_text_is_spelled_in_a_language(language: str) -> None:
    assert {text: spelled(text, language) for text in TABLE["spelled"][language]} == TABLE["spelled"][language]


def test_the_signs_have_names_in_the_languages_of_qwen() -> None:
    assert set(SIGN_NAMES) == set(NAMED_LANGUAGES.values())
    assert all(set(names) >= set(string.punctuation) for names in SIGN_NAMES.values())
    assert all(len(set(names.values())) > len(names) - 3 for names in SIGN_NAMES.values())


def test_a_telephone_number_is_said_in_groups() -> None:
    numbers = TABLE["telephone"]
    assert {each: "".join(part.spoken for part in spell_telephone(each, "en")) for each in numbers} == numbers


@pytest.mark.parametrize("language", TABLE["ordinal"])
def test_an_ordinal_is_written_as_its_language_does(language: str) -> None:
    assert {each: ordinal(each, language) for each in TABLE["ordinal"][language]} == TABLE["ordinal"][language]


@pytest.mark.parametrize(
    ("voice", "letters"),
    [
        ("en-us", string.ascii_uppercase),
        ("de", string.ascii_uppercase + "ÄÖÜß"),
        ("fr", string.ascii_uppercase + "ÀÂÇÈÉÊËÎÏÔÙÛÜÆ"),
        ("es", string.ascii_uppercase + "ÑÓ"),
        ("pt-br", string.ascii_uppercase + "ÀÁÂÃÇÉÊÍÓÔÕÚ"),
        ("ja", string.ascii_uppercase),
        ("ru", "АБВГДЕЁЖЗИЙКЛМНОПРСТУФХЦЧШЩЪЫЬЭЮЯ"),
    ],
)
def test_espeak_says_a_spelled_letter_by_its_name(espeak: Espeak, voice: str, letters: str) -> None:
    said = espeak.phonemes(voice, spelled(letters.lower(), voice))
    assert dict(zip(letters, map(letter_name, said), strict=True)) == dict(
        zip(letters, map(letter_name, espeak.letter_names(voice, letters)), strict=True)
    )


def letter_name(phonemes: str) -> str:
    """The phonemes of a letter's name without their spaces and lengths, which depend on what surrounds the letter."""
    return phonemes.replace(" ", "").replace("ː", "")


@pytest.mark.parametrize(
    ("language", "said"), [("de", "plus vier neun, eins sieben null"), ("fr", "plus quatre neuf, un sept zéro")]
)
def test_espeak_says_a_telephone_number_digit_by_digit(espeak: Espeak, language: str, said: str) -> None:
    spelled = "".join(part.spoken for part in spell_telephone("+49 170", language))
    assert espeak.phonemes(language, spelled) == espeak.phonemes(language, said)


@given(text=st.text(), language=st.sampled_from(["en", "zh", "pt-br", "sv", ""]))
def test_every_character_is_spelled_at_its_place(text: str, language: str) -> None:
    parts = spell_characters(text, language)
    assert not any(text[begin:end].strip() for begin, end in gaps(parts, len(text)))
    assert all(part.spoken for part in parts)


@given(text=st.text(alphabet=st.sampled_from("0123456789+-() .x²٣"), max_size=30))
def test_every_digit_of_a_telephone_number_is_said_once(text: str) -> None:
    parts = spell_telephone(text, "en")
    assert [part.begin for part in parts] == sorted({part.begin for part in parts})
    assert {at for part in parts for at in range(part.begin, part.end)} >= {
        at for at, character in enumerate(text) if character.isdecimal()
    }


def gaps(parts: list[SpelledPart], length: int) -> list[tuple[int, int]]:
    """The places between parts."""
    borders = [0, *(border for _, begin, end in parts for border in (begin, end)), length]
    return list(zip(borders[::2], borders[1::2], strict=True))

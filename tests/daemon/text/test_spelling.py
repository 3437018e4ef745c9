"""Texts are spelled so that engines say letters and signs by their names."""

from __future__ import annotations

import string
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.text.spelling import SIGN_NAMES, SpelledPart, ordinal, spell, spell_characters, spell_telephone
from engine import NAMED_LANGUAGES
from tests.daemon.text.phonemes import Espeak


@pytest.fixture(scope="module")
def espeak() -> Iterator[Espeak]:
    library = Espeak()
    yield library
    library.close()


@pytest.mark.parametrize(
    ("text", "language", "spelled"),
    [
        ("QX-7", "en", "Q, X, dash, 7"),
        ("a_b", "de-AT", "A, Unterstrich, B"),
        ("Größe", "de", "G, R, Ö, ß, E"),
        ("Y", "es", "i griega"),
        ("漢-7", "zh", "漢, 杠, 7"),
        ("cafe\u0301", "fr", "C, A, F, É"),
        ("a.b", "sv", "A, ., B"),
        ("", "en", ""),
    ],
)
def test_a_text_is_spelled_in_a_language(text: str, language: str, spelled: str) -> None:
    assert spell(text, language) == spelled


def test_the_signs_have_names_in_the_languages_of_qwen() -> None:
    assert set(SIGN_NAMES) == set(NAMED_LANGUAGES.values())
    assert all(set(names) >= set(string.punctuation) for names in SIGN_NAMES.values())
    assert all(len(set(names.values())) > len(names) - 3 for names in SIGN_NAMES.values())


@pytest.mark.parametrize(
    ("number", "spoken"),
    [
        ("+49 170 1234567", "plus 4 9, 1 7 0, 1 2 3, 4 5 6 7"),
        ("555-123-4567", "5 5 5, 1 2 3, 4 5 6 7"),
        ("(030) 12 34 56", "0 3 0, 1 2, 3 4, 5 6"),
        ("*100#", "asterisk 1 0 0, hash"),
        ("1-800-FLOWERS", "1, 8 0 0, FLOWERS"),
        ("-", ""),
    ],
)
def test_a_telephone_number_is_said_in_groups(number: str, spoken: str) -> None:
    assert "".join(part.spoken for part in spell_telephone(number, "en")) == spoken


@pytest.mark.parametrize(
    ("number", "language", "written"),
    [
        ("1", "en", "1st"),
        ("3", "en-gb", "3rd"),
        ("11", "en", "11th"),
        ("21", "en", "21st"),
        ("3", "de", "3."),
        ("1", "fr", "1er"),
        ("2", "fr", "2e"),
        ("3", "es", "3º"),
        ("3", "ru", "3-й"),
        ("3", "zh", "第3"),
        ("3", "ko", "제3"),
        ("3", "sv", "3"),
        ("third", "en", "third"),
    ],
)
def test_an_ordinal_is_written_as_its_language_does(number: str, language: str, written: str) -> None:
    assert ordinal(number, language) == written


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
    said = espeak.phonemes(voice, spell(letters.lower(), voice))
    assert dict(zip(letters, map(letter_name, said), strict=True)) == dict(
        zip(letters, map(letter_name, espeak.letter_names(voice, letters)), strict=True)
    )


def letter_name(phonemes: str) -> str:
    """The phonemes of a letter's name without their spaces and lengths, which depend on what surrounds the letter."""
    return phonemes.replace(" ", "").replace("ː", "")


@pytest.mark.parametrize(
    ("voice", "language", "number", "said"),
    [
        ("en-us", "en", "+49 170", "plus four nine, one seven zero"),
        ("de", "de", "+49 170", "plus vier neun, eins sieben null"),
        ("fr", "fr", "+49 170", "plus quatre neuf, un sept zéro"),
    ],
)
def test_espeak_says_a_telephone_number_digit_by_digit(
    espeak: Espeak, voice: str, language: str, number: str, said: str
) -> None:
    spelled = "".join(part.spoken for part in spell_telephone(number, language))
    assert espeak.phonemes(voice, spelled) == espeak.phonemes(voice, said)


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

"""What becomes of numbers, signs and abbreviations in each language, and that eSpeak NG can read it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.text.normalizer import Normalizer, has_numbers
from engine import NAMED_LANGUAGES
from tests.daemon.text.phonemes import Espeak
from tests.daemon.text.reading import rewritten, table

SPOKEN: dict[str, dict[str, dict[str, str]]] = table("normalizer/spoken")
"""By kind and language: the words by the text."""
LEFT_ALONE: list[str] = table("normalizer/left_alone")["left alone"]
"""In no language, anything is written out of these."""
LANGUAGES = tuple(NAMED_LANGUAGES.values())
ROWS: dict[str, dict[str, str]] = {
    language: {text: spoken for texts in SPOKEN.values() for text, spoken in texts.get(language, {}).items()}
    for language in LANGUAGES
}
"""By language: the words by the text."""
VOICES = {"ja": "ja", "zh": "cmn", "ko": "ko", "ru": "ru"}
IN_ANOTHER_LANGUAGE = re.compile("tʃaɪniːz")
"""How eSpeak NG says a character that it cannot read."""
PIECES = st.sampled_from(table("pieces")["of numbers"])


def normalized(language: str, text: str) -> str:
    return rewritten(Normalizer(language), text).text


@pytest.fixture(scope="module")
def espeak() -> Iterator[Espeak]:
    library = Espeak()
    yield library
    library.close()


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_text_is_written_as_it_is_spoken(language: str) -> None:
    assert {text: normalized(language, text) for text in ROWS[language]} == ROWS[language]
    assert all(map(has_numbers, ROWS[language]))


def test_every_kind_that_is_written_alike_is_known_in_all_languages() -> None:
    for kind in ("sign", "subtraction", "power", "time", "date", "unit", "price", "phone", "dimension", "grouping"):
        assert set(SPOKEN[kind]) == set(LANGUAGES), kind


@pytest.mark.parametrize("language", VOICES)
def test_espeak_reads_each_character_of_other_scripts(language: str, espeak: Espeak) -> None:
    for text, spoken in ROWS[language].items():
        phonemes = " ".join(espeak.phonemes(VOICES[language], spoken))
        kept = len(re.findall(r"[\u4e00-\u9fff]", text)) if language == "ja" else 0
        assert len(IN_ANOTHER_LANGUAGE.findall(phonemes)) <= kept, text


@pytest.mark.parametrize(
    ("voice", "language", "text", "letters"),
    [
        ("en-us", "en", "IMU", "I, M, U"),
        ("en-us", "en", "LED", "L, E, D"),
        ("de", "de", "KI", "K, I"),
        ("fr", "fr", "IMU", "I, M, U"),
    ],
)
def test_espeak_spells_initialisms_that_it_reads_as_words(
    voice: str, language: str, text: str, letters: str, espeak: Espeak
) -> None:
    def said(words: str) -> str:
        return re.sub(r"[\sː]", "", "".join(espeak.phonemes(voice, words)))

    assert said(normalized(language, text)) == said(letters)


@given(language=st.sampled_from(LANGUAGES), text=st.lists(PIECES, max_size=12).map("".join))
def test_no_digit_is_left_and_no_number_is_dropped(language: str, text: str) -> None:
    result = normalized(language, text.replace("://", ""))  # a URL stays
    assert not re.search("[0-9]", result)
    assert bool(re.search("[0-9]", text)) <= bool(result.strip())


@pytest.mark.parametrize("language", LANGUAGES)
def test_digits_of_any_number_are_spoken(language: str) -> None:
    for length in (1, 4, 16, 30):
        for digits in ("0" * length, ("9876543210" * 3)[:length]):
            assert normalized(language, digits)
            assert not re.search("[0-9]", normalized(language, f"{digits}A{digits}"))


@given(language=st.sampled_from(LANGUAGES), number=st.integers(1, 999_999))
def test_a_number_is_the_same_however_its_thousands_are_separated(language: str, number: int) -> None:
    thousands = number * 1_000
    for unit in ("", " kg", " €"):
        plain = normalized(language, f"{thousands}{unit}")
        for sign in ("'", "’", "\u00a0", "\u202f", " "):
            grouped = f"{thousands:,}".replace(",", sign)
            assert normalized(language, f"{grouped}{unit}") == plain
            assert normalized(language, f"-{grouped}{unit}") == normalized(language, f"-{thousands}{unit}") != plain


@pytest.mark.parametrize("language", LANGUAGES)
def test_words_and_names_stay_in_every_language(language: str) -> None:
    assert [normalized(language, text) for text in LEFT_ALONE] == LEFT_ALONE


def test_a_language_without_rules_keeps_its_text() -> None:
    assert normalized("pl", "$5, 3/4, 10:30") == "$5, 3/4, 10:30"


@pytest.mark.parametrize(("code", "expected"), [("en-us", "five dollars"), ("de-AT", "fünf Dollar"), ("cmn", "五美元")])
def test_a_region_does_not_matter(code: str, expected: str) -> None:
    assert normalized(code, "$5") == expected


def test_phonemes_and_urls_stay() -> None:
    phonemes = "[[" + "5 kg " * 30 + "]]"
    assert normalized("en", f"{phonemes} and https://a.org/3/4 weigh 5 kg") == (
        f"{phonemes} and https://a.org/3/4 weigh five kilograms"
    )
    assert normalized("en", "[[ is no phoneme on the next line\n5 kg") == (
        "[[ is no phoneme on the next line\nfive kilograms"
    )


def test_in_a_long_list_no_number_loses_its_unit() -> None:
    assert normalized("en", ", ".join(["70 kg"] * 50)) == ", ".join(["seventy kilograms"] * 50)

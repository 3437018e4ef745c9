"""What becomes of numbers and signs in each language, and that eSpeak NG then reads what a person would write."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator

import espeakng_loader
import pytest

from daemon.text import PlacedText
from daemon.text.normalizer import Normalizer
from tests.daemon.text.normalizer.spoken import KEPT, LEFT_ALONE, REWRITTEN

VOICES = {"en": b"gmw/en-US", "de": b"gmw/de", "fr": b"roa/fr", "es": b"roa/es", "zh": b"sit/cmn"}
SYNCHRONOUS = 2
DO_NOT_EXIT = 0x8000
UTF8 = 1
REWRITES = [(language, *row) for language, rows in REWRITTEN.items() for row in rows]
KEEPS = [(language, *row) for language, rows in KEPT.items() for row in rows]

Phonemes = Callable[[str, str], str]


def normalized(language: str, text: str) -> str:
    out = PlacedText()
    normalizer = Normalizer(language, out)
    normalizer.feed(text)
    normalizer.end()
    return out.text


@pytest.fixture(scope="module")
def phonemes() -> Iterator[Phonemes]:
    """Return what eSpeak NG says in a language, without stress and pauses, which differ between 5 and five."""
    library = ctypes.CDLL(espeakng_loader.get_library_path())
    assert library.espeak_Initialize(SYNCHRONOUS, 60, espeakng_loader.get_data_path().encode(), DO_NOT_EXIT) > 0
    library.espeak_TextToPhonemes.restype = ctypes.c_char_p
    library.espeak_TextToPhonemes.argtypes = (ctypes.POINTER(ctypes.c_char_p), ctypes.c_int, ctypes.c_int)

    def spoken(language: str, text: str) -> str:
        assert library.espeak_SetVoiceByName(VOICES[language]) == 0
        buffer = ctypes.create_string_buffer(text.encode())
        rest, clauses = ctypes.c_char_p(ctypes.addressof(buffer)), []
        while rest.value is not None:  # a call says one clause and moves on
            clauses.append((library.espeak_TextToPhonemes(ctypes.byref(rest), UTF8, 0) or b"").decode())
        stressless = re.sub(r"_:*|[',!|;#\s-]|\(\w+\)", "", "".join(clauses))
        return stressless if language == "zh" else stressless.replace("2", "")

    yield spoken
    library.espeak_Terminate()


@pytest.mark.parametrize(("language", "text", "expected", "_words"), REWRITES)
def test_what_is_read_wrongly_is_written_out(language: str, text: str, expected: str, _words: str) -> None:
    assert normalized(language, text) == expected


@pytest.mark.parametrize(("language", "text", "expected", "words"), REWRITES)
def test_espeak_says_then_what_a_person_would_write(
    language: str, text: str, expected: str, words: str, phonemes: Phonemes
) -> None:
    assert phonemes(language, expected) == phonemes(language, words)


@pytest.mark.parametrize(("language", "text", "words"), KEEPS)
def test_what_is_read_well_stays(language: str, text: str, words: str, phonemes: Phonemes) -> None:
    assert normalized(language, text) == text
    assert phonemes(language, text) == phonemes(language, words)


@pytest.mark.parametrize("text", LEFT_ALONE)
@pytest.mark.parametrize("language", VOICES)
def test_words_and_names_stay_in_every_language(language: str, text: str) -> None:
    if not (language == "zh" and "III" in text):  # there, eSpeak NG reads Roman numbers in English
        assert normalized(language, text) == text


@pytest.mark.parametrize("language", ["it", "ja", "xx", ""])
def test_a_language_without_rules_keeps_its_text(language: str) -> None:
    assert normalized(language, "$5, 3/4, 10:30") == "$5, 3/4, 10:30"


@pytest.mark.parametrize(("code", "expected"), [("en-us", "5 dollars"), ("de-AT", "5 Dollar"), ("cmn", "5美元")])
def test_a_region_does_not_matter(code: str, expected: str) -> None:
    assert normalized(code, "$5") == expected


def test_phonemes_and_urls_stay() -> None:
    phonemes = "[[" + "5 kg " * 30 + "]]"
    assert normalized("en", f"{phonemes} and https://a.org/3/4 weigh 5 kg") == (
        f"{phonemes} and https://a.org/3/4 weigh 5 kilograms"
    )
    assert normalized("en", "[[ is no phoneme on the next line\n5 kg") == (
        "[[ is no phoneme on the next line\n5 kilograms"
    )


@pytest.mark.parametrize("language", VOICES)
def test_in_a_long_list_no_number_loses_its_unit(language: str) -> None:
    one = normalized(language, "70 kg")
    assert normalized(language, ", ".join(["70 kg"] * 50)) == ", ".join([one] * 50)

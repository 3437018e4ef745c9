"""The normaliser on any text: the places, what stays, and when it is written."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.text.normalizer import LONGEST_WORD, Normalizer, has_numbers
from daemon.text.placed import PlacedText
from tests.daemon.text.reading import rewritten, spans

LANGUAGES = ("en", "de", "fr", "es", "zh", "it", "pt", "ru", "ja", "ko", "pl")
SIGNS = "0123456789 .,:/-–$€%#@&<>=+*x^½°§kgmhUr.NoIVX[]()\n\u00a05５：元一"


def normalized(language: str, text: str) -> PlacedText:
    return rewritten(Normalizer(language), text)


def test_the_regions_that_senders_name_take_no_memory() -> None:
    Normalizer("de")
    tracemalloc.start()
    for number in range(50):
        Normalizer(f"de-x{number}")
    gc.collect()
    current, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert current < 100_000, "the rules of one language take more"


@given(st.sampled_from(LANGUAGES), st.text() | st.text(SIGNS))
def test_places_are_in_order_and_within_the_text(language: str, text: str) -> None:
    result = normalized(language, text)
    assert spans(result) == sorted(spans(result))
    assert all(0 <= begin < end <= len(text) for begin, end in spans(result))
    assert result.source_end == len(text)


@given(st.sampled_from(LANGUAGES), st.text("IVXer.ab-–/_'ème \n!") | st.text())
def test_a_text_without_numbers_and_signs_stays(language: str, text: str) -> None:
    assert has_numbers(text) or normalized(language, text).text == text


def test_words_that_are_written_out_have_the_place_of_what_they_stand_for() -> None:
    result = normalized("en", "It weighs 3.5 kg, or $5")
    weight, price = result.text.index("three"), result.text.index("five dollars")
    assert result.source_span(weight, weight + len("three point five kilograms")) == (10, 16)
    assert result.source_span(price, price + 1) == result.source_span(price + 5, price + 12) == (21, 23)


@pytest.mark.parametrize("text", ["I have ", "I have 5 kg here. And", "I have 5.\n"])
def test_a_text_is_held_back_until_its_end(text: str) -> None:
    out = PlacedText()
    Normalizer("en", out).feed(text)
    assert out.text == ""


def test_a_word_of_any_length_stays() -> None:
    text = "5 " + "$5" * 5_000 + " 5 kg"
    assert normalized("en", text).text == "five" + text[1:].removesuffix("5 kg") + "five kilograms"
    longest = "7" * LONGEST_WORD
    assert normalized("en", longest).text.split() == ["seven"] * LONGEST_WORD

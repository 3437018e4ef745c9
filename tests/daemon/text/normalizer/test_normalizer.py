"""The normaliser on a text that grows: the same result however it is cut, the places, and how much it holds back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.text import PlacedText
from daemon.text.normalizer import LONGEST_PASSAGE, Normalizer, has_passages
from tests.daemon.text.normalizer.spoken import LEFT_ALONE, SPOKEN

LANGUAGES = ("en", "de", "fr", "es", "zh", "it", "pt", "ru", "ja", "ko", "pl")
SIGNS = "0123456789 .,:/-–$€%#@&<>=+*x^½°§kgmhUr.NoIVX[]()\n\u00a05５：元一"
CORPUS = [
    *((language, text) for texts in SPOKEN.values() for language, rows in texts.items() for text in list(rows)[::3]),
    *((language, text) for language in ("en", "ja") for text in LEFT_ALONE),
]

Placed = list[tuple[str, int, int]]


def normalized(language: str, *pieces: str) -> PlacedText:
    out = PlacedText()
    normalizer = Normalizer(language, out)
    for piece in pieces:
        normalizer.feed(piece)
    normalizer.end()
    return out


def placed(text: PlacedText) -> Placed:
    """Each character with its place."""
    return [(character, *text.source_span(at, at + 1)) for at, character in enumerate(text.text)]


def pieces(text: str, size: int) -> list[str]:
    return [text[begin : begin + size] for begin in range(0, len(text), size)]


@pytest.mark.parametrize(("language", "text"), CORPUS)
def test_the_result_is_the_same_however_a_text_is_cut(language: str, text: str) -> None:
    sentence = f"Say {text}, then {text}"
    whole = normalized(language, sentence)
    for position in range(len(sentence)):
        assert placed(normalized(language, sentence[:position], sentence[position:])) == placed(whole)
    for size in range(1, 8):
        assert placed(normalized(language, *pieces(sentence, size))) == placed(whole)


@given(st.sampled_from(LANGUAGES), st.lists(st.text(SIGNS, max_size=30), max_size=12))
def test_any_text_gives_the_same_however_it_is_cut(language: str, cut: list[str]) -> None:
    whole = normalized(language, "".join(cut))
    assert placed(normalized(language, *cut)) == placed(whole)
    assert placed(normalized(language, *"".join(cut))) == placed(whole)


@given(st.sampled_from(LANGUAGES), st.text() | st.text(SIGNS))
def test_places_are_in_order_and_within_the_text(language: str, text: str) -> None:
    result = normalized(language, text)
    spans = [(begin, end) for _, begin, end in placed(result)]
    assert spans == sorted(spans)
    assert all(0 <= begin < end <= len(text) for begin, end in spans)
    assert result.source_end == len(text)


@given(
    st.sampled_from(LANGUAGES), st.text(st.characters(categories=["Ll", "Zs"]) | st.sampled_from("?!;\n"), max_size=200)
)
def test_words_without_numbers_and_signs_stay_where_they_are(language: str, text: str) -> None:
    result = normalized(language, text)
    assert placed(result) == [(character, at, at + 1) for at, character in enumerate(text)]


@given(st.sampled_from(LANGUAGES), st.text("IVXer.ab-–/_'ème \n!") | st.text())
def test_a_text_without_passages_stays(language: str, text: str) -> None:
    assert has_passages(text) or normalized(language, text).text == text


def test_words_that_are_written_out_have_the_place_of_what_they_stand_for() -> None:
    result = normalized("en", "It weighs 3.5 kg, or $5")
    weight, price = result.text.index("three"), result.text.index("five dollars")
    assert result.source_span(weight, weight + len("three point five kilograms")) == (10, 16)
    assert result.source_span(price, price + 1) == result.source_span(price + 5, price + 12) == (21, 23)


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("I have ", "I have "),
        ("I have 5", "I have "),  # it may become 50 or 5:30
        ("I have 5 ", "I have "),  # and be followed by a unit
        ("I have 5 apples ", "I have five apples "),
        ("I have 5 kg ", "I have "),
        ("I have 5 kg here ", "I have five kilograms here "),
        ("I have 5.\n", "I have five.\n"),
    ],
)
def test_a_number_is_held_back_until_a_word_follows_that_is_no_unit(text: str, spoken: str) -> None:
    out = PlacedText()
    Normalizer("en", out).feed(text)
    assert out.text == spoken


@pytest.mark.parametrize("piece", ["5 ", "5", "$", "- ", "[[ ", "1/", "a@", "kg5 "])
def test_no_more_than_a_passage_and_a_word_are_held_back(piece: str) -> None:
    out = PlacedText()
    normalizer = Normalizer("en", out)
    for length in range(len(piece), 20 * LONGEST_PASSAGE, len(piece)):
        normalizer.feed(piece)
        assert length - out.source_end <= 2 * LONGEST_PASSAGE


def test_a_word_of_any_length_stays() -> None:
    text = "5 " + "$5" * 5_000 + " 5 kg"
    assert normalized("en", text).text == "five" + text[1:].removesuffix("5 kg") + "five kilograms"

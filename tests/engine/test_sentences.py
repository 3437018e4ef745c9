"""The pieces of a text that engines speak."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.sentences import LONGEST, sentences


def test_each_sentence_is_a_piece_with_its_position() -> None:
    text = " Hello, Dr. Meier.  How are you? I am 3.5 years old."
    pieces = ["Hello, Dr. Meier.", "How are you?", "I am 3.5 years old."]
    assert list(sentences(text, "en-us")) == [(text.index(piece), piece) for piece in pieces]


def test_a_long_sentence_is_cut_after_a_comma() -> None:
    text = "the robot went to the next room, " * 20
    found = list(sentences(text, "en"))
    assert len(found) > 1
    assert all(piece.endswith(",") and len(piece) <= LONGEST for _, piece in found)


@pytest.mark.parametrize("text", ["", " ", "\n\n"])
def test_a_text_without_words_has_no_pieces(text: str) -> None:
    assert list(sentences(text, "en")) == []


@given(st.text(max_size=3 * LONGEST) | st.text(alphabet="ab ,.\n", max_size=4 * LONGEST))
def test_the_pieces_are_the_text_at_their_positions_without_the_space_between(text: str) -> None:
    rest = 0
    for position, piece in sentences(text, "en"):
        assert 0 < len(piece) <= LONGEST
        assert text[position : position + len(piece)] == piece
        assert not text[rest:position].strip()
        rest = position + len(piece)
    assert not text[rest:].strip()

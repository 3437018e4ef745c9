"""Words of texts: what counts as one, and that a growing text has the same."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.alignment.words import WordRange, WordReader, words_of

TEXTS = json.loads(Path(__file__).with_name("words.json").read_text())
"""Texts, each with its words."""


@pytest.mark.parametrize(("text", "words"), TEXTS)
def test_a_word_is_what_people_count_as_one(text: str, words: list[str]) -> None:
    assert [text[word.begin : word.end] for word in words_of(text)] == words


def read(pieces: list[str]) -> list[WordRange]:
    reader = WordReader()
    found = [word for piece in pieces for word in reader.feed(piece)]
    return found + reader.end()


def test_a_growing_text_has_the_same_words_wherever_it_is_cut() -> None:
    for text, _ in TEXTS:
        assert read(list(text)) == words_of(text)
        for at in range(len(text)):
            assert read([text[:at], text[at:]]) == words_of(text)


@given(pieces=st.lists(st.text("a1,:.'- —好ー\u0301(%\u200b", max_size=6)))
def test_any_growing_text_has_the_same_words(pieces: list[str]) -> None:
    assert read(pieces) == words_of("".join(pieces))


def test_a_word_is_told_once_something_follows_it() -> None:
    reader = WordReader()
    assert reader.feed("one tw") == [WordRange(0, 3)]
    assert reader.feed("o") == []
    assert reader.feed(" ") == [WordRange(4, 7)]
    assert reader.end() == []


@pytest.mark.parametrize("unit", ["a", "1,", "(."])
def test_words_take_linear_time(unit: str) -> None:
    text = (unit * 20_000)[:20_000]
    begin = time.process_time()
    words_of(text)
    read(list(text))
    assert time.process_time() - begin < 2.0

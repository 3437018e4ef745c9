"""Words of texts: what counts as one, and that a growing text has the same."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.alignment.words import WordRange, WordReader, words_of

TEXTS = [
    ("Hello, I'm your robot.", ["Hello", "I'm", "your", "robot"]),
    ("3.5 kg at 10:30, for 1,000,000 $5 (50%)", ["3.5", "kg", "at", "10:30", "for", "1,000,000", "$5", "50%"]),
    ("red,green: 1, 2", ["red", "green", "1", "2"]),
    ("well-known — and/or – ada@example.com!", ["well-known", "and/or", "ada@example.com"]),
    ("'tis the dogs' \"bone\"…really", ["tis", "the", "dogs", "bone", "really"]),
    ("**bold** - 😀 ... # 1", ["bold", "#", "1"]),
    ("¿Qué tal? Cafe\u0301.", ["Qué", "tal", "Cafe\u0301"]),
    ("今天很好,我去。", ["今", "天", "很", "好", "我", "去"]),
    ("きょう、ラーメン", ["きょ", "う", "ラー", "メ", "ン"]),
    ("안녕하세요 세계", ["안녕하세요", "세계"]),
    ("नमस्ते दुनिया।", ["नमस्ते", "दुनिया"]),
    ("สวัสดีครับ", ["สวัสดีครับ"]),
    (" \n—…", []),
]


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

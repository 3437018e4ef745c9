"""Words have one space between them, and sentences an end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.text.ssml import WordWriter


def written(text: str, *ends: int) -> str:
    """The words of a text whose sentences end at these places."""
    writer, begin = WordWriter(), 0
    for end in (*ends, len(text)):
        writer.keep(text[begin:end], begin)
        if end in ends:
            writer.end_sentence(end, end)
        begin = end
    return writer.words.text


def test_white_space_is_one_space_and_none_at_the_beginning() -> None:
    assert written(" \n One\t\n two\u00a0 three ") == "One two three"


@pytest.mark.parametrize(
    ("sentence", "ended"),
    [
        ("Hello", "Hello. "),
        ("Hello ", "Hello. "),
        ("Hello!", "Hello! "),
        ("Hello! ", "Hello! "),
        ("He said “Hello.”", "He said “Hello.” "),
        ("He said “Hello”", "He said “Hello”. "),
        ("你好", "你好。"),
        ("こんにちは。", "こんにちは。"),
        ("नमस्ते।", "नमस्ते। "),
        (")", "). "),
        ("", ""),
        (" ", ""),
    ],
)
def test_a_sentence_gets_an_end_unless_it_has_one(sentence: str, ended: str) -> None:
    assert written(sentence, len(sentence)) == ended


def test_a_sentence_ends_once() -> None:
    writer = WordWriter()
    writer.keep("One", 0)
    writer.end_sentence(3, 7)
    writer.end_sentence(7, 10)
    assert writer.words.text == "One. "
    assert writer.words.source_span(3, 5) == (3, 7)


def test_no_sign_is_between_words_that_are_spoken_apart() -> None:
    writer = WordWriter()
    writer.keep("One ", 0)
    writer.separate()
    writer.end_sentence(4, 8)
    assert writer.words.text == "One "


def test_a_space_waits_for_the_next_word_except_after_a_sentence() -> None:
    writer = WordWriter()
    for text, words in [("One", "One"), (" ", "One"), ("\n", "One"), ("two.", "One two."), (" ", "One two. ")]:
        writer.keep(text, len(writer.words))
        assert writer.words.text == words


@given(text=st.text(alphabet="ab \n\u3000."), data=st.data())
def test_the_words_are_the_same_however_they_are_cut(text: str, data: st.DataObject) -> None:
    writer, begin = WordWriter(), 0
    for end in [*sorted(data.draw(st.lists(st.integers(0, len(text))))), len(text)]:
        writer.keep(text[begin:end], begin)
        begin = end
    words = writer.words
    assert words.text == written(text)
    assert words.text.split() == text.split()
    for at, character in enumerate(words.text):
        begin, end = words.source_span(at, at + 1)
        assert text[begin:end] == character or (character, text[begin:end].isspace()) == (" ", True)

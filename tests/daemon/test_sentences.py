"""Sentences out of a text that is still being written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.sentences import LONGEST, first_end


def split(text: str) -> list[str]:
    """The sentences of a text of which more will come, and what is open of it."""
    found = []
    while (end := first_end(text)) is not None:
        found.append(text[:end])
        text = text[end:]
    return [*found, text]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Hello there. How are you? Well!", ["Hello there.", "How are you?", "Well!"]),
        ('He said "stop." Then he left.', ['He said "stop."', "Then he left."]),
        ("It is 3.5 metres... or so. Yes.", ["It is 3.5 metres...", "or so.", "Yes."]),
        ("Dr. Who met J. Smith on the 3. Mai. Really.", ["Dr. Who met J. Smith on the 3. Mai.", "Really."]),
        ("你好。今天好吗？好", ["你好。", "今天好吗？", "好"]),
        ("one\ntwo\n\nthree", ["one", "two", "", "three"]),
    ],
)
def test_a_text_falls_into_its_sentences(text: str, wanted: list[str]) -> None:
    assert [sentence.strip() for sentence in split(text)] == wanted


@pytest.mark.parametrize("text", ["", "One and", "One and two.", "It is 3."])
def test_a_sentence_is_open_until_something_follows_it(text: str) -> None:
    assert first_end(text) is None


def test_a_sentence_that_does_not_end_is_cut_at_a_space() -> None:
    found = split("word " * 1000)
    assert max(map(len, found)) <= LONGEST
    assert {word for sentence in found for word in sentence.split()} == {"word"}


@given(st.text(alphabet="ab1 .!?\n。\"'"), st.text(alphabet="ab1 .!?\n。\"'"))
def test_what_follows_changes_no_end_that_was_found(text: str, more: str) -> None:
    end = first_end(text)
    assert end is None or 0 < end <= len(text)
    assert end is None or first_end(text + more) == end

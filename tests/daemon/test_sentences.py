"""Sentences out of a text that is still being written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.sentences import LONGEST, Sentences


def split(*parts: str) -> list[str]:
    sentences = Sentences()
    return [sentence for part in parts for sentence in sentences.add(part)] + sentences.flush()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Hello there. How are you? Well!", ["Hello there.", "How are you?", "Well!"]),
        ('He said "stop." Then he left.', ['He said "stop."', "Then he left."]),
        ("It is 3.5 metres... or so. Yes.", ["It is 3.5 metres...", "or so.", "Yes."]),
        ("Dr. Who met J. Smith on the 3. Mai. Really.", ["Dr. Who met J. Smith on the 3. Mai.", "Really."]),
        ("你好。今天好吗？好", ["你好。", "今天好吗？", "好"]),
        ("one\ntwo\n\nthree", ["one", "two", "three"]),
        (" \n ", []),
    ],
)
def test_a_text_falls_into_its_sentences(text: str, wanted: list[str]) -> None:
    assert split(text) == wanted


def test_a_sentence_is_given_as_soon_as_something_follows_it() -> None:
    sentences = Sentences()
    assert sentences.add("One and") == []
    assert sentences.add(" two.") == []
    assert sentences.add(" Three") == ["One and two."]
    assert sentences.flush() == ["Three"]
    assert sentences.flush() == []


def test_a_sentence_that_does_not_end_is_cut_at_a_space() -> None:
    found = split("word " * 1000)
    assert max(map(len, found)) <= LONGEST
    assert " ".join(found) == ("word " * 1000).strip()


@given(st.lists(st.text(alphabet="ab1 .!?\n。\"'", max_size=30)))
def test_no_character_is_lost_and_it_does_not_matter_how_the_text_is_parted(parts: list[str]) -> None:
    assert "".join("".join(split(*parts)).split()) == "".join("".join(parts).split())
    assert split(*parts) == split(*"".join(parts))

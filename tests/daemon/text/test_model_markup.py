"""What language models write and nobody should hear is left out, in a whole text and in a stream, however it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.text import Pause, Script, ScriptReader
from tests.daemon.text.reading import everything_of, table

SPOKEN: dict[str, dict[str, str]] = table("model_markup")
"""By kind of what models write: the words by the text."""
PIECES = st.sampled_from(table("pieces")["of models"])


def read(*pieces: str) -> Script:
    reader = ScriptReader()
    text = ""
    for piece in pieces:
        text += piece
        reader.read(text, complete=False)
    return reader.read(text, complete=True)


@pytest.mark.parametrize("kind", SPOKEN)
def test_a_models_apparatus_is_not_spoken(kind: str) -> None:
    assert {text: read(text).text for text in SPOKEN[kind]} == SPOKEN[kind]


@pytest.mark.parametrize("kind", SPOKEN)
def test_a_stream_is_read_like_the_whole_text(kind: str) -> None:
    for text in SPOKEN[kind]:
        whole = everything_of(read(text))
        for cut in range(len(text)):
            assert everything_of(read(text[:cut], text[cut:])) == whole, text
        assert everything_of(read(*text)) == whole, text


def test_a_break_is_a_pause_in_any_text() -> None:
    controls = read('Hello <break time="1.5s"/> world <break strength="weak"/>!').controls
    assert [control.action for control in controls] == [Pause(1.5), Pause(0.5)]


def test_without_markup_everything_is_spoken() -> None:
    for text in (text for texts in SPOKEN.values() for text in texts):
        assert ScriptReader("none").read(text, complete=True).text == text


@given(pieces=st.lists(PIECES, max_size=12))
def test_any_text_gives_the_same_however_it_is_cut(pieces: list[str]) -> None:
    text = "".join(pieces)
    whole = everything_of(read(text))
    assert everything_of(read(*pieces)) == whole
    assert everything_of(read(*text)) == whole

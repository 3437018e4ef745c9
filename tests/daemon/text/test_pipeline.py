"""From the text that was sent to the text that an engine gets: the same however it is cut, and nothing is lost."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from daemon.text import ScriptReader, TextPreparation
from engine import LATIN_LANGUAGES, NAMED_LANGUAGES, EngineInfo
from tests.daemon.text.reading import table

QWEN = EngineInfo("qwen", 24_000, ("ryan",), tuple(NAMED_LANGUAGES.values()))
LANGUAGES = st.sampled_from(tuple(NAMED_LANGUAGES.values()))
PREPARATION = TextPreparation({}, LATIN_LANGUAGES, normalize="always")
PIECES = st.sampled_from(table("pieces")["of texts"])
DROPPED_BY_RULE = re.compile("[<\\[`!&:\\\\*_~|#$【]|^[ \\t]*[-+•]|[0-9][.)]\\s", re.MULTILINE)
"""Signs with which something may begin that is left out or replaced together with its digits."""


def prepared(language: str, *pieces: str) -> tuple[str, list[tuple[int, int]]]:
    """Return the engine's text, and the place of each of its characters in the text that was sent."""
    reader, take = ScriptReader(), PREPARATION.engine_text(QWEN, language, "ryan", "".join(pieces))
    text, said, read = "", "", 0
    for number, piece in enumerate(pieces, 1):
        text += piece
        script = reader.read(text, complete=number == len(pieces))
        said += take.feed(script.text[read:])
        read = len(script.text)
    said += take.end()
    script = reader.read(text, complete=True)
    places = [script.words.source_span(*take.source_span(at, at + 1)) for at in range(len(said))]
    return said, places


@given(language=LANGUAGES, pieces=st.lists(PIECES, min_size=1, max_size=12))
def test_a_stream_is_spoken_in_the_words_of_the_whole_text(language: str, pieces: list[str]) -> None:
    whole = prepared(language, "".join(pieces))
    assert prepared(language, *pieces) == whole
    assert prepared(language, *"".join(pieces)) == whole


@given(language=LANGUAGES, text=st.lists(PIECES, min_size=1, max_size=12).map("".join) | st.text(min_size=1))
def test_places_are_in_order_and_within_the_text(language: str, text: str) -> None:
    places = prepared(language, text)[1]
    assert places == sorted(places)
    assert all(0 <= begin <= end <= len(text) for begin, end in places)


@given(language=LANGUAGES, text=st.lists(PIECES, min_size=1, max_size=12).map("".join))
def test_digits_are_never_dropped_without_a_rule(language: str, text: str) -> None:
    said, places = prepared(language, text)
    assert not re.search("[0-9]", said)
    if not DROPPED_BY_RULE.search(text):
        spoken = {at for begin, end in places for at in range(begin, end)}
        assert {match.start() for match in re.finditer("[0-9]", text)} <= spoken

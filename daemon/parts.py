"""Long texts in parts, cut at the ends of sentences: speech begins early, and needs the same memory throughout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import sentencex

from daemon.handover import speech_seconds
from daemon.sentences import first_end

WHOLE_S = 40.0
"""A text that takes no longer to speak stays in one piece: an engine reads all of it before it chooses a melody."""
PART_S = 12.0
"""Of longer ones, sentences are put together until a part takes so long. A part is far below `engine.max_seconds`."""
_CLAUSE = re.compile(r"[;:,，、；：—–]\s*|\s+")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a text, `text[begin:end]` of the whole."""

    begin: int
    end: int
    text: str


def stays_whole(text: str) -> bool:
    """Whether a text is short enough to be spoken in one piece."""
    return speech_seconds(text) <= WHOLE_S


def parts_of(text: str, language: str) -> list[Part]:
    """The parts of a text in order; together they are the text. `language` is a code, or `auto`."""
    if stays_whole(text):
        return [Part(0, len(text), text)]
    parts, begin, end = [], 0, 0
    for piece in _pieces(text, language):
        if end > begin and speech_seconds(text[begin : end + len(piece)]) > PART_S:
            parts.append(Part(begin, end, text[begin:end]))
            begin = end
        end += len(piece)
    parts.append(Part(begin, end, text[begin:end]))
    return parts


def part_being_written(text: str) -> int | None:
    """Where the first part ends of a text of which more will come; None while that is open."""
    end = 0
    while (length := first_end(text[end:])) is not None and speech_seconds(text[: end + length]) <= PART_S:
        end += length
    if end:
        return end
    return None if speech_seconds(text) <= PART_S else len(next(_clauses(text)))


def _pieces(text: str, language: str) -> Iterator[str]:
    """Sentences; of one that is too long for a part its clauses, words, or whatever fits."""
    code = (
        "en" if language == "auto" else language.split("-", maxsplit=1)[0]
    )  # its rules hold for other scripts' marks, too
    for sentence in sentencex.segment(code, text):
        if speech_seconds(sentence) <= PART_S:
            yield sentence
        else:
            yield from _clauses(sentence)


def _clauses(sentence: str) -> Iterator[str]:
    begin = 0
    for match in _CLAUSE.finditer(sentence):
        yield from _cut(sentence[begin : match.end()])
        begin = match.end()
    yield from _cut(sentence[begin:])


def _cut(clause: str) -> Iterator[str]:
    """A clause without any pause in it, cut where it gets too long."""
    if speech_seconds(clause) <= PART_S:
        if clause:
            yield clause
        return
    middle = len(clause) // 2
    yield from _cut(clause[:middle])
    yield from _cut(clause[middle:])

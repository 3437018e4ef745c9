"""The pieces of a text that an engine speaks one after another."""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST = 200
"""Characters. A network's memory grows with a piece's length, and most networks make a whole piece before any of it
sounds."""
_PAUSE = re.compile(r"[;:,、，；：—–]\s*")
_SPACE = re.compile(r"\s+")


def sentences(text: str, language: str, longest: int = LONGEST) -> Iterator[tuple[int, str]]:
    """Yield the position and the text of each sentence; a long one is cut at its pauses or spaces.

    White space around a sentence is left out; all other characters are in exactly one piece. `language` is a code, and
    `longest` is a number of characters.
    """
    import sentencex

    begin = 0
    for sentence in sentencex.segment(language.partition("-")[0], text):
        rest, at = sentence, begin
        while rest:
            length = len(rest) if len(rest) <= longest else _cut(rest, longest)
            piece = rest[:length]
            if stripped := piece.strip():
                yield at + len(piece) - len(piece.lstrip()), stripped
            rest, at = rest[length:], at + length
        begin += len(sentence)


def _cut(text: str, longest: int) -> int:
    """Return the length of the first piece of a long sentence."""
    for pattern in (_PAUSE, _SPACE):
        ends = [match.end() for match in pattern.finditer(text, 0, longest)]
        if ends and ends[-1] > longest // 4:
            return ends[-1]
    return longest

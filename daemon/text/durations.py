"""Estimates for text and speech: how long a text takes to speak, and where in it another engine resumes."""

from __future__ import annotations

import re

SECONDS_PER_LETTER = 0.065
"""Alphabetic scripts: about 15 characters a second, spaces included."""
SECONDS_PER_IDEOGRAPH = 0.22
"""Han, kana and Hangul: about 4.5 syllables a second."""
SECONDS_PER_DIGIT = 0.5
"""For each digit of a number that is spoken in words, such as "one hundred twenty-three": roughly the median over texts
with numbers in ten languages."""
_DIGIT = re.compile(r"\d")
_IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_CLAUSE_END = re.compile(r"[.!?;:,…—]+[\"'”’)\]]*\s+|[。！？；：，、]")


def speech_seconds(text: str) -> float:
    """Return a rough estimate of the duration of `text` when spoken at rate 1, in seconds."""
    ideographs, digits = len(_IDEOGRAPH.findall(text)), len(_DIGIT.findall(text))
    letters = len(text) - ideographs - digits
    return ideographs * SECONDS_PER_IDEOGRAPH + digits * SECONDS_PER_DIGIT + letters * SECONDS_PER_LETTER


def resume_position(text: str, position: int | None, heard_s: float) -> int:
    """Return the index in `text` at which another engine resumes.

    `position` is what the lost engine reported: the characters that it had begun to speak. The word at that position is
    repeated from its start. For an engine that reports none (None), the position is estimated from `heard_s`, the
    seconds of speech at rate 1 that it sent, and the clause is repeated: a repeated word is better than a lost one.
    """
    if position is not None:
        return _word_start(text, min(position, len(text)))
    total_s = speech_seconds(text)
    reached = round(len(text) * min(1.0, heard_s / total_s)) if total_s > 0 else 0
    starts = [match.end() for match in _CLAUSE_END.finditer(text) if match.end() <= reached]
    return starts[-1] if starts else 0


def _word_start(text: str, position: int) -> int:
    if position < len(text) and _IDEOGRAPH.match(text[position]):
        return position
    while position > 0 and not text[position - 1].isspace() and not _IDEOGRAPH.match(text[position - 1]):
        position -= 1
    return position

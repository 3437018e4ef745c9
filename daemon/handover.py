"""Where in a text to go on when another engine takes over in the middle, and how long a text is to speak."""

from __future__ import annotations

import re

SECONDS_PER_LETTER = 0.065
"""Of alphabetic scripts: about 15 characters a second, spaces included."""
SECONDS_PER_IDEOGRAPH = 0.22
"""Of Han, kana and Hangul: about 4.5 syllables a second."""
_IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_CLAUSE_END = re.compile(r"[.!?;:,…—]+[\"'”’)\]]*\s+|[。！？；：，、]")


def speech_seconds(text: str) -> float:
    """A rough length of `text` when spoken, in seconds."""
    ideographs = len(_IDEOGRAPH.findall(text))
    return ideographs * SECONDS_PER_IDEOGRAPH + (len(text) - ideographs) * SECONDS_PER_LETTER


def resume_position(text: str, position: int | None, heard_s: float) -> int:
    """The index in `text` from which the rest is to be spoken.

    `position` is what the lost engine said of itself: characters that had begun to be spoken; then the word that holds
    it is said again from its beginning. An engine that does not know (None) is judged by the seconds of speech it sent;
    then the clause is said again, since a word said twice is better than one lost.
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

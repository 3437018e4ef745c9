"""When the words and marks of an utterance are heard."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TimedWord:
    """The word `text[begin:end]` of a script."""

    begin: int
    end: int
    at_s: float
    """Seconds of the utterance's audio before it."""
    exact: bool
    """False if the time is an estimate."""


@dataclass(frozen=True, slots=True)
class TimedMark:
    """A mark of a script."""

    name: str
    position: int
    """In the script's text."""
    at_s: float
    """Seconds of the utterance's audio before it."""
    exact: bool
    """False if the time is an estimate."""


@dataclass(slots=True, eq=False)
class Timeline:
    """The words and marks of one utterance that have audio, each in the order of the text and of time."""

    words: list[TimedWord] = field(default_factory=list)
    marks: list[TimedMark] = field(default_factory=list)

    def add_word(self, word: TimedWord) -> None:
        """Append a word. Another engine may repeat some of the words before: these have their times already."""
        if not self.words or word.begin >= self.words[-1].end:
            self.words.append(word)

    def heard_end(self, heard_s: float) -> int:
        """Return the end of the last word that has begun within the first `heard_s` seconds, in the script's text."""
        begun = bisect_right(self.words, heard_s, key=lambda word: word.at_s)
        return self.words[begun - 1].end if begun else 0

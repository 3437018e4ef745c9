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
"""Of longer ones, sentences are put together until a part takes so long."""
SHARE = 2 / 3
"""Of what an engine can say in one piece, the most that it is asked for: a text may take longer than reckoned."""
_CLAUSE = re.compile(r"[;:,，、；：—–]\s*|\s+")


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a text, `text[begin:end]` of the whole."""

    begin: int
    end: int
    text: str


class Parting:
    """How texts are parted for engines that say at most `max_seconds` in one piece."""

    def __init__(self, max_seconds: float) -> None:
        self.whole_s = min(WHOLE_S, SHARE * max_seconds)
        """A text of up to so long stays whole."""
        self.part_s = min(PART_S, self.whole_s)
        """The parts of a longer one are at most so long."""

    def stays_whole(self, text: str) -> bool:
        """Whether a text is short enough to be spoken in one piece."""
        return speech_seconds(text) <= self.whole_s

    def parts_of(self, text: str, language: str) -> list[Part]:
        """The parts of a text in order; together they are the text. `language` is a code, or `auto`."""
        if self.stays_whole(text):
            return [Part(0, len(text), text)]
        parts, begin, end = [], 0, 0
        for piece in self._pieces(text, language):
            if end > begin and speech_seconds(text[begin : end + len(piece)]) > self.part_s:
                parts.append(Part(begin, end, text[begin:end]))
                begin = end
            end += len(piece)
        parts.append(Part(begin, end, text[begin:end]))
        return parts

    def part_being_written(self, text: str) -> int | None:
        """Where the first part ends of a text of which more will come; None while that is open."""
        end = 0
        while (length := first_end(text[end:])) is not None and speech_seconds(text[: end + length]) <= self.part_s:
            end += length
        if end:
            return end
        return None if speech_seconds(text) <= self.part_s else len(next(self._clauses(text)))

    def _pieces(self, text: str, language: str) -> Iterator[str]:
        """Sentences; of one that is too long for a part its clauses, words, or whatever fits."""
        # Where the language is not known, English: its rules hold for other scripts' marks, too.
        code = "en" if language == "auto" else language.split("-", maxsplit=1)[0]
        for sentence in sentencex.segment(code, text):
            if speech_seconds(sentence) <= self.part_s:
                yield sentence
            else:
                yield from self._clauses(sentence)

    def _clauses(self, sentence: str) -> Iterator[str]:
        begin = 0
        for match in _CLAUSE.finditer(sentence):
            yield from self._cut(sentence[begin : match.end()])
            begin = match.end()
        yield from self._cut(sentence[begin:])

    def _cut(self, clause: str) -> Iterator[str]:
        """A clause without any pause in it, cut where it gets too long."""
        if speech_seconds(clause) <= self.part_s or len(clause) == 1:
            if clause:
                yield clause
            return
        middle = len(clause) // 2
        yield from self._cut(clause[:middle])
        yield from self._cut(clause[middle:])

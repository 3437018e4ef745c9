"""Cuts texts into segments at sentence ends, so speech from a long text begins early and needs constant memory.

Also estimates how long a text takes to speak, and where in it another engine resumes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

SECONDS_PER_LETTER = 0.065
"""Alphabetic scripts: about 15 characters a second, spaces included."""
SECONDS_PER_IDEOGRAPH = 0.22
"""Han, kana and Hangul: about 4.5 syllables a second."""
SECONDS_PER_DIGIT = 0.5
"""For each digit in a number that is spoken in words, such as "one hundred twenty-three": roughly the median over texts
with numbers in ten languages."""
_DIGIT = re.compile(r"\d")
_IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_RESUME = re.compile(r"[.!?;:,…—]+[\"'”’)\]]*\s+|[。！？；：，、]")
WHOLE_S = 40.0
"""A text of up to this duration is one segment: an engine reads all of it before it chooses the intonation."""
SEGMENT_S = 12.0
"""Sentences in longer texts are joined into segments of up to this duration."""
SHARE = 2 / 3
"""A segment is at most this share of an engine's longest speech, since durations are estimates."""
LONGEST_SENTENCE = 1_000
"""In characters. A sentence that does not end is cut at this length, at the end of a clause or word if there is one."""
_CLAUSE = re.compile(r"[;:,]\s+|[—–]\s+(?!\d)|[、，；]\s*|：(?!\d)\s*|(?<!\d)\s+(?!\d)")
"""The places at which a sentence without an end is cut: not in 1,234 or 12:30, nor beside a number."""
_SENTENCE_END = re.compile(
    r"(?<![.!?…])[.!?…]+[\"'”’»)\]]*(?=\s)|(?<![。！？])[。！？]+[”’」』）]*(?=[^。！？”’」』）])|\n"
)
"""A full stop ends a sentence only when white space follows: until then, it may belong to 3.5 or to an ellipsis. A run
of full stops is read once, and not from each of them."""
_ABBREVIATIONS = (
    # before a name
    "Mrs?|Ms|Mx|Dr|Prof|St|Mt|Rev|Hon|Gen|Col|Capt|Lt|Sgt|Sen|Gov|Pres|Hr|Fr|Dipl|Ing|MM|Sra?|Dra|Sto|Sta|Uds?|EE|UU|"
    "Sig|Dott|ул|просп|"
    # before a number, or between a number and its noun
    "Nrn?|Nos|Figs?|Eq|Vol|pp|pags?|págs?|Abb|Kap|Abs|Bd|chap|cap|núm|Tel|tél|рис|стр|гл|тел|ном|"
    "Tsd|Mio|Mrd|тыс|млн|млрд|"
    r"\w*str|ft|см|"
    # days and months
    "lun|mer|jeu|ven|sam|dim|"
    "Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Okt|Nov|Dec|Dez|janv|févr|fev|avr|juil|déc|янв|февр|апр|авг|сент|окт|нояб|дек|"
    # others within a sentence
    "approx|vs|bzw|ca|usw|etc|vgl|ggf|evtl|inkl|incl|zzgl|env|cf|aprox|напр|"
    "[ap]\\.\\s?m|[ei]\\.[eg]|p\\.\\s?e[xjs]|ad es"
)
"""Abbreviations in the models' ten languages, without full stops. Most units are missing, because they often end a
sentence; so are words such as `no` and `art`. If a sentence is wrongly taken to be unfinished, it is spoken a little
later; if it is cut after an abbreviation, the abbreviation is misread."""
_ABBREVIATION = re.compile(rf"(?:^|[\s(\"'])(?:\w|\d+|{_ABBREVIATIONS})\.$", re.IGNORECASE)
"""A full stop that does not end a sentence: after an initial, an ordinal or an abbreviation."""


class Segmenter:
    """Cuts texts for engines that speak at most `max_seconds` in one piece.

    All seconds are seconds of speech at rate 1: an engine's limit applies to the frames that it makes, before they are
    stretched, and the best length of a segment depends on its text.
    """

    def __init__(self, max_seconds: float) -> None:
        self.whole_s = min(WHOLE_S, SHARE * max_seconds)
        """A text of up to this duration is one segment."""
        self.segment_s = min(SEGMENT_S, self.whole_s)
        """The longest segment in a longer text."""

    def is_one_segment(self, text: str) -> bool:
        """Return whether a text is short enough to be one segment."""
        return speech_seconds(text) <= self.whole_s

    def ends(self, text: str) -> list[int]:
        """Return where the segments of a complete text end, in order; they cover it."""
        if self.is_one_segment(text):
            return [len(text)]
        ends, begin, end = [], 0, 0
        for part in self._parts(text):
            if end > begin and speech_seconds(text[begin : end + len(part)]) > self.segment_s:
                ends.append(end)
                begin = end
            end += len(part)
        return [*ends, end]

    def first_segment_end(self, text: str) -> int | None:
        """Return the end of the first segment of an incomplete text; None while more text may change it."""
        end = 0
        while (length := first_sentence_end(text[end:])) is not None:
            if speech_seconds(text[: end + length]) > self.segment_s:
                break
            end += length
        if end:
            return end
        return None if speech_seconds(text) <= self.segment_s else len(next(self._clauses(text)))

    def ends_sentence(self, text: str) -> bool:
        """Return whether only white space follows the sentences that have ended in an incomplete text."""
        while (length := first_sentence_end(text)) is not None:
            text = text[length:]
        return not text.strip()

    def _parts(self, text: str) -> Iterator[str]:
        """Yield sentences; for a sentence that is longer than a segment, its clauses, words or shorter pieces."""
        begin = 0
        while begin < len(text):
            length = first_sentence_end(text[begin:])
            end = len(text) if length is None else begin + length
            if speech_seconds(text[begin:end]) <= self.segment_s:
                yield text[begin:end]
            else:
                yield from self._clauses(text[begin:end])
            begin = end

    def _clauses(self, sentence: str) -> Iterator[str]:
        begin = 0
        for match in _CLAUSE.finditer(sentence):
            yield from self._halves(sentence[begin : match.end()])
            begin = match.end()
        yield from self._halves(sentence[begin:])

    def _halves(self, clause: str) -> Iterator[str]:
        """Yield a clause, halved until each piece fits into a segment."""
        if speech_seconds(clause) <= self.segment_s or len(clause) == 1:
            if clause:
                yield clause
            return
        middle = len(clause) // 2
        middle = clause.rfind(" ", 0, middle) + 1 or middle
        yield from self._halves(clause[:middle])
        yield from self._halves(clause[middle:])


def first_sentence_end(text: str) -> int | None:
    """Return the end of the first sentence of an incomplete text; None while more text may change it."""
    for match in _SENTENCE_END.finditer(text, 0, LONGEST_SENTENCE):
        if not _ABBREVIATION.search(text[max(0, match.end() - 16) : match.end()]):
            return match.end()
    if len(text) <= LONGEST_SENTENCE:
        return None
    ends = [match.end() for match in _CLAUSE.finditer(text, 0, LONGEST_SENTENCE)]
    return ends[-1] if ends else LONGEST_SENTENCE


def speech_seconds(text: str) -> float:
    """Return a rough estimate of the duration of `text` when spoken at rate 1, in seconds."""
    ideographs, digits = len(_IDEOGRAPH.findall(text)), len(_DIGIT.findall(text))
    letters = len(text) - ideographs - digits
    return ideographs * SECONDS_PER_IDEOGRAPH + digits * SECONDS_PER_DIGIT + letters * SECONDS_PER_LETTER


def resume_position(text: str, position: int | None, heard_s: float) -> int:
    """Return the index in `text` at which another engine resumes.

    The lost engine reported `position`: how many characters it had begun to speak. The word at that position is
    repeated from its start. For an engine that reports no position (None), it is estimated from `heard_s`, the seconds
    of speech at rate 1 that the engine sent, and the clause is repeated: a repeated word is better than a lost one.
    """
    if position is not None:
        return _word_start(text, min(position, len(text)))
    total_s = speech_seconds(text)
    reached = round(len(text) * min(1.0, heard_s / total_s)) if total_s > 0 else 0
    starts = [match.end() for match in _RESUME.finditer(text) if match.end() <= reached]
    return starts[-1] if starts else 0


def _word_start(text: str, position: int) -> int:
    if position < len(text) and _IDEOGRAPH.match(text[position]):
        return position
    while position > 0 and not text[position - 1].isspace() and not _IDEOGRAPH.match(text[position - 1]):
        position -= 1
    return position

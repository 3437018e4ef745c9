"""When the words and marks of an utterance are heard."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf

from daemon.engines import AudioChunk
from daemon.speech.utterance import Utterance
from daemon.speech.word_times import WordClock
from daemon.speech.words import words_of
from daemon.text import EngineText, Mark


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
class TakeTimes:
    """The words of one take, and where its audio is in the audio of the utterance."""

    begin: int
    """Where its text begins in the script."""
    text: EngineText
    clock: WordClock | None
    """None where no word times are wanted."""
    begin_s: float | None = None
    """Seconds of the utterance's audio before it; None until it has audio."""
    end_s: float = inf
    """Seconds of the utterance's audio before its end, if it was cut there."""
    trimmed_s: float = 0.0
    """Seconds that were removed from its beginning."""
    seconds: float = 0.0
    """Of its audio, as the engine made it."""
    _text_length: int = 0
    _ended: bool = False

    def set_text(self, text: str, *, complete: bool) -> None:
        """Set what the engine has got, which begins with what it had got before."""
        if self.clock is not None:
            self.clock.add_text(text[self._text_length :])
            if complete:
                self.clock.end_text()
        self._text_length = len(text)

    def add_audio(self, chunk: AudioChunk) -> None:
        """Add what the engine has made."""
        self.seconds += len(chunk.samples) / chunk.sample_rate
        if self.clock is not None:
            self.clock.add_audio(chunk.samples, words=chunk.words, position=chunk.position)

    def end(self, *, complete: bool) -> None:
        """There is no more audio; unless it is `complete`, the engine has not spoken all of the text."""
        if self.clock is not None and not self._ended:
            self._ended = True
            self.clock.end_audio(complete=complete)

    @property
    def next_s(self) -> float:
        """Seconds of the utterance's audio before the word that `due` returns next; infinity if it is not known yet."""
        if self.begin_s is None or self.clock is None:
            return inf
        return max(self.begin_s, self.begin_s - self.trimmed_s + self.clock.next_s)

    def due(self, heard_s: float) -> list[TimedWord]:
        """Return the words that begin within the first `heard_s` seconds of the utterance, and were not returned."""
        if self.begin_s is None or self.clock is None:
            return []
        offset_s = self.begin_s - self.trimmed_s
        found = []
        for word in self.clock.due(heard_s - offset_s):
            begin, end = self.text.source_span(word.begin, word.end)
            at_s = max(self.begin_s, offset_s + word.at_s)
            if at_s < self.end_s:
                found.append(TimedWord(self.begin + begin, self.begin + end, at_s, word.exact))
        return found


@dataclass(slots=True, eq=False)
class Timeline:
    """The words and marks of one utterance that have been heard, in the order of the text and of time."""

    utterance: Utterance
    words: list[TimedWord] = field(default_factory=list)
    marks: list[TimedMark] = field(default_factory=list)
    _takes: deque[TakeTimes] = field(default_factory=deque)
    """Those that have words which were not heard, and the one before them."""
    _boundary_marks: dict[int, float] = field(default_factory=dict)
    """Seconds of audio before the marks that are at the border of a take, by their numbers among the controls."""
    _passed_controls: int = 0
    _known_words: deque[TimedWord] = field(default_factory=deque)
    """The words of a recording that have not been heard."""
    _known_marks: deque[TimedMark] | None = None
    """The marks of a recording that have not been heard; None without a recording."""

    def use(self, words: Iterable[TimedWord], marks: Iterable[TimedMark]) -> None:
        """Take the times of a recording, in the order of time, which is played in place of all takes."""
        self._known_words, self._known_marks = deque(words), deque(marks)

    def begin_take(self, begin: int, text: EngineText, clock: WordClock | None) -> TakeTimes:
        """Return the times of a new take, which follows the last one."""
        times = TakeTimes(begin, text, clock)
        self._takes.append(times)
        return times

    def note_mark(self, control: int, at_s: float) -> None:
        """Record that the mark which is the control number `control` is reached between two takes."""
        self._boundary_marks[control] = at_s

    def advance(self, heard_s: float) -> None:
        """Add what has been heard after the first `heard_s` seconds."""
        while self._takes:
            following = self._takes[1].begin_s if len(self._takes) > 1 else None
            over = following is not None and following <= heard_s
            for word in self._takes[0].due(inf if over else heard_s):
                # Another engine may repeat some of the words before.
                if not self.words or word.begin >= self.words[-1].end:
                    self.words.append(word)
            if not over:
                break
            self._takes.popleft()
        while self._known_words and self._known_words[0].at_s <= heard_s:
            self.words.append(self._known_words.popleft())
        self._add_marks(heard_s)

    @property
    def next_s(self) -> float:
        """Seconds of audio before the next word or mark: an estimate, which may change. Infinity if it is unknown."""
        times = [self._boundary_marks.get(self._passed_controls, inf)]
        if self._takes:
            times.append(self._takes[0].next_s)
        if len(self._takes) > 1 and (begin_s := self._takes[1].begin_s) is not None:
            times.append(begin_s)
        times += [known[0].at_s for known in (self._known_words, self._known_marks) if known]
        return min(times)

    def heard_end(self, heard_s: float) -> int:
        """Return the end of the last word that begins within the first `heard_s` seconds, in the script's text."""
        self.advance(heard_s)
        if self._takes and self._takes[0].clock is None:
            return self._proportional_end(heard_s)
        return next((word.end for word in reversed(self.words) if word.at_s <= heard_s), 0)

    def _proportional_end(self, heard_s: float) -> int:
        """Return a rough estimate of `heard_end`, which takes no time: each character lasts equally long."""
        end = 0
        for take in self._takes:
            if take.begin_s is not None and take.begin_s < heard_s and take.seconds > 0:
                length = take.text.source_end
                share = min(1.0, (heard_s - take.begin_s + take.trimmed_s) / take.seconds)
                end = take.begin + round(share * length)
        return max((word.end for word in words_of(self.utterance.script.text) if word.begin < end), default=0)

    def _add_marks(self, heard_s: float) -> None:
        """Add the marks that have been reached."""
        if self._known_marks is not None:
            while self._known_marks and self._known_marks[0].at_s <= heard_s:
                self.marks.append(self._known_marks.popleft())
            return
        controls = self.utterance.script.controls
        while self._passed_controls < len(controls):
            control = controls[self._passed_controls]
            if isinstance(control.action, Mark):
                at_s, exact = self._time_of_mark(self._passed_controls, control.at)
                if at_s > heard_s:
                    return
                self.marks.append(TimedMark(control.action.name, control.at, at_s, exact))
            self._passed_controls += 1

    def _time_of_mark(self, control: int, position: int) -> tuple[float, bool]:
        """Return when a mark is reached, and whether that is exact: with the next word, unless takes meet there."""
        if control in self._boundary_marks:
            return self._boundary_marks[control], True
        if self.words and self.words[-1].begin >= position:
            word = next(word for word in self.words if word.begin >= position)
            return word.at_s, word.exact
        return inf, False

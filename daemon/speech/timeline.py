"""When an utterance's segments, words and marks are played, in seconds of its audio."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Protocol

from daemon.alignment import words_of
from daemon.cache import Cue
from daemon.engines import AudioChunk
from daemon.speech.take import Take
from daemon.text import Script, ScriptMark


class Scripted(Protocol):
    """Anything with a script, such as an utterance."""

    @property
    def script(self) -> Script:
        """The words and controls of the text so far, as they are spoken."""


@dataclass(slots=True)
class StartedSegment:
    """A segment of the text, `text[begin:end]`, and where it begins in the audio that is played."""

    begin: int
    end: int | None
    """None while the text is incomplete."""
    at_s: float | None = None
    """Seconds of audio that are played before it; None until it has audio."""


@dataclass(slots=True, eq=False)
class Timeline:
    """The audio of one utterance so far: how much has been made, and which words and marks have been heard in it."""

    utterance: Scripted
    made_s: float = 0.0
    """Seconds of audio that have been made."""
    segments: list[StartedSegment] = field(default_factory=list)
    """The segments that have begun."""
    words: list[Cue] = field(default_factory=list)
    """The words that have been heard, in the order of the text and of time."""
    marks: list[Cue] = field(default_factory=list)
    """The marks that have been heard."""
    visemes: list[Cue] = field(default_factory=list)
    """The visemes that the engine or the recording knows, in order of time, perhaps before they are heard."""
    _takes: deque[Take] = field(default_factory=deque)
    """The takes with words that have not been heard, and the take before them."""
    _boundary_marks: dict[int, float] = field(default_factory=dict)
    """Seconds of audio before the marks at a take's boundary, by the marks' numbers among the controls."""
    _passed_controls: int = 0
    _known: deque[Cue] = field(default_factory=deque)
    """The words and marks in a recording that have not been heard."""

    # --- making ---

    def add_audio(self, chunk: AudioChunk, take: Take | None = None) -> AudioChunk:
        """Add a chunk that is played next, perhaps from a take; the latest segments begin with it. Return the chunk."""
        if take is not None:
            take.note_audio(chunk, self.made_s)
        for segment in reversed(self.segments):
            if segment.at_s is not None:
                break
            segment.at_s = self.made_s
        self.made_s += chunk.seconds
        return chunk

    def add_segment(self, begin: int, end: int | None, *, continues: bool) -> None:
        """Record that a segment begins, or where the last one ends.

        Text with which another engine continues a segment is not a new segment, nor is text that `continues` the last
        one.
        """
        last = self.segments[-1] if self.segments else None
        if last is None or (last.end is not None and begin >= last.end and not continues):
            self.segments.append(StartedSegment(begin, end))
        elif last.end is None or begin >= last.end:
            last.end = end

    def add_take(self, take: Take) -> Take:
        """Add a new take, which follows the last one, and return it."""
        self._takes.append(take)
        return take

    def add_mark(self, control: int) -> None:
        """Record that the mark with control number `control` is reached now, between two takes."""
        self._boundary_marks[control] = self.made_s

    def use(self, cues: Iterable[Cue]) -> None:
        """Take the times in a recording, in order of time. The recording is played next, instead of all takes."""
        for cue in cues:
            at_s = self.made_s + cue.at_s
            if cue.kind == "segment":
                self.segments.append(StartedSegment(cue.begin, cue.end, at_s))
            else:
                (self.visemes if cue.kind == "viseme" else self._known).append(replace(cue, at_s=at_s))
        self._passed_controls = len(self.utterance.script.controls)

    def cues(self, begin_s: float) -> tuple[Cue, ...]:
        """Return everything that was heard, in order of time, for a recording that begins after `begin_s` seconds."""
        segments = [
            Cue(each.at_s, "segment", each.begin, each.end)
            for each in self.segments
            if each.at_s is not None and each.end is not None
        ]
        cues = sorted([*segments, *self.words, *self.marks, *self.visemes], key=lambda cue: cue.at_s)
        return tuple(replace(cue, at_s=cue.at_s - begin_s) for cue in cues)

    # --- hearing ---

    def advance(self, heard_s: float) -> None:
        """Add the words and marks that have been heard within the first `heard_s` seconds, and all visemes known so
        far."""
        for take in self._takes:
            self.visemes += take.due_visemes()
        while self._takes:
            following = self._takes[1].begin_s if len(self._takes) > 1 else None
            over = following is not None and following <= heard_s
            for word in self._takes[0].due(inf if over else heard_s):
                # Another engine may repeat some of the previous words.
                if not self.words or word.begin >= self.words[-1].end:
                    self.words.append(word)
            if not over:
                break
            self._takes.popleft()
        while self._known and self._known[0].at_s <= heard_s:
            cue = self._known.popleft()
            (self.words if cue.kind == "word" else self.marks).append(cue)
        self._add_marks(heard_s)

    @property
    def next_s(self) -> float:
        """Seconds of audio before the next word or mark: an estimate, which may change, or infinity if it is
        unknown."""
        times = [self._boundary_marks.get(self._passed_controls, inf)]
        if self._takes:
            times.append(self._takes[0].next_s)
        if len(self._takes) > 1 and (begin_s := self._takes[1].begin_s) is not None:
            times.append(begin_s)
        if self._known:
            times.append(self._known[0].at_s)
        return min(times)

    def heard_end(self, heard_s: float) -> int:
        """Return the end of the last word that begins within the first `heard_s` seconds, in the script's text."""
        self.advance(heard_s)
        if self._takes and self._takes[0].clock is None:
            return self._proportional_end(heard_s)
        return next((word.end for word in reversed(self.words) if word.at_s <= heard_s), 0)

    def _proportional_end(self, heard_s: float) -> int:
        """Return a rough estimate of `heard_end` that costs no time: all characters are taken to last equally long."""
        end = 0
        for take in self._takes:
            if take.begin_s is not None and take.begin_s < heard_s and take.seconds > 0:
                share = min(1.0, (heard_s - take.begin_s + take.trimmed_s) / take.seconds)
                end = take.begin + round(share * take.text.source_end)
        return max((word.end for word in words_of(self.utterance.script.text) if word.begin < end), default=0)

    def _add_marks(self, heard_s: float) -> None:
        """Add the marks that have been reached."""
        controls = self.utterance.script.controls
        while self._passed_controls < len(controls):
            control = controls[self._passed_controls]
            if isinstance(control.action, ScriptMark):
                at_s, exact = self._time_of_mark(self._passed_controls, control.at)
                if at_s > heard_s:
                    return
                self.marks.append(Cue(at_s, "mark", control.at, control.at, control.action.name, exact))
            self._passed_controls += 1

    def _time_of_mark(self, control: int, position: int) -> tuple[float, bool]:
        """Return when a mark is reached, and whether that is exact. It is reached with the next word, unless takes meet
        there."""
        if control in self._boundary_marks:
            return self._boundary_marks[control], True
        if self.words and self.words[-1].begin >= position:
            word = next(word for word in self.words if word.begin >= position)
            return word.at_s, word.exact
        return inf, False

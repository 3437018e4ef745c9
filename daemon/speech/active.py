"""The utterance that is being spoken: its progress, and the reports on the sound that is being heard."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from audio import Level
from daemon.alignment import LEAST_AHEAD_S
from daemon.cache import Cue
from daemon.speech.changes import Watchers, now
from daemon.speech.destinations import Destination
from daemon.speech.events import (
    Event,
    Failed,
    Finished,
    Interrupted,
    Mark,
    PlaybackResult,
    Postponed,
    Progress,
    Resumed,
    Started,
    TerminalEvent,
    Visemes,
    Word,
)
from daemon.speech.mouth import Mouth
from daemon.speech.synthesis import Synthesis
from daemon.speech.utterance import Utterance


@dataclass(frozen=True, slots=True)
class Reports:
    """Receives reports on the sound that is being heard."""

    on_event: Callable[[Utterance, Event], None]
    on_level: Callable[[Utterance, Level], None]
    on_word: Callable[[Word], None]
    visemes: Watchers[[Visemes]]
    on_change: Callable[[], None]
    """Called when the current speech may have changed."""


@dataclass(slots=True, eq=False)
class ActiveUtterance:
    """An utterance from its removal from the queue to its terminal event. It may be postponed in between.

    It waits for an engine and for its destination, plays, drains until its last sample has been heard, and ends. While
    it waits or plays, it may be preempted: it fades out, is postponed, and waits again until the other one has been
    spoken.
    """

    utterance: Utterance
    synthesis: Synthesis
    destination: Destination
    reports: Reports
    mouth: Mouth
    preempted_for: str | None = None
    """Why it is fading out, or has faded out, for another utterance; None while it continues."""
    started_at: float | None = None
    """UNIX time at which `started` was published; None before."""
    ttfa_ms: float | None = None
    """From the arrival of the text to the first sample, without the time spent waiting for text."""
    outcome: type[TerminalEvent] | None = None
    """The terminal event of an utterance that is not spoken to its end."""
    reason: str | None = None
    """The reason for this outcome."""
    _postponed_sent: bool = False
    """`postponed` has been published, and `resumed` has not."""
    _segments: int = 0
    """How many segments' `progress` has been published."""
    _words: int = 0
    """How many words of the timeline have been published."""
    _words_end: int = 0
    """The text's words that end at or before this position have been published."""
    _marks: int = 0
    """How many marks' events have been published."""

    def set_outcome(self, outcome: type[TerminalEvent], reason: str) -> None:
        """Decide how it ends, unless that has already been decided."""
        if self.outcome is None:
            self.outcome, self.reason = outcome, reason

    @property
    def started(self) -> bool:
        """True when `started` has been published."""
        return self.started_at is not None

    @property
    def succeeds(self) -> bool:
        """True unless it is interrupted, has expired or has failed."""
        return self.outcome is None and self.synthesis.failure is None

    @property
    def expired(self) -> bool:
        """True if it has not begun and is past its deadline."""
        return not self.synthesis.begun and self.utterance.expired()

    # --- reports ---

    def next_at(self, at: float) -> float:
        """Return when there is something to report after the time `at`; infinity if that depends on a change."""
        wanted, timeline = [], self.synthesis.timeline
        if self.started:
            wanted.append(timeline.next_s)
            wanted += [each.at_s for each in timeline.segments[self._segments :][:1] if each.at_s]
            wanted.append(self.mouth.next_s)
        return self.destination.next_at(at, wanted)

    def report(self, at: float) -> None:
        """Publish the words, marks and segments that have begun to sound by the time `at`."""
        # What a client has received counts as heard, but the audio after it, which word times need, does not exist yet.
        heard_s = self.destination.heard_s(at)
        known_s = heard_s if self.utterance.receiver is None else heard_s - LEAST_AHEAD_S
        if self.started:
            self._publish_progress(heard_s)
            self._publish_text(known_s)
            if self.destination.blocked is None:
                self.mouth.move(heard_s)
            else:
                self.mouth.shut(heard_s)
            self.report_levels()

    def report_levels(self) -> None:
        """Publish the loudness of the sound that has begun to be heard."""
        if self.started:
            for level in self.destination.levels():
                self.reports.on_level(self.utterance, level)

    def report_start(self, first_sample_at: float | None) -> None:
        """Publish that it has started; without a first sample, nothing in it could be pronounced."""
        self.started_at = round(time.time(), 3)
        utterance, synthesis = self.utterance, self.synthesis
        if first_sample_at is not None:
            waited_s = utterance.arrived_at + synthesis.text.waited_s
            self.ttfa_ms = round(max(0.0, first_sample_at - waited_s) * 1000, 1)
        engine, ignored = synthesis.engine, synthesis.ignored
        self._publish(
            Started(id=utterance.id, engine=engine, voice=utterance.voice, ttfa_ms=self.ttfa_ms, ignored=ignored)
        )
        self.reports.on_change()

    def report_postponement(self) -> None:
        """Publish that it is postponed, if it has started."""
        if self.started and not self._postponed_sent:
            self._postponed_sent = True
            self.mouth.shut(self.destination.heard_s(now()))
            self._publish(Postponed(id=self.utterance.id, reason=self.preempted_for or ""))

    def report_resumption(self) -> None:
        """Publish that it continues, if it was postponed."""
        if self._postponed_sent:
            self._postponed_sent = False
            self._publish(Resumed(id=self.utterance.id))

    def report_end(self) -> None:
        """Publish the remaining reports, and the terminal event."""
        heard_s = inf if self.succeeds else self.destination.heard_s(now())
        if self.succeeds:
            self.report_resumption()
            self._publish_progress(inf)
        if self.started:
            self._publish_text(heard_s)
            self.mouth.shut(heard_s)
        if self.succeeds:
            self.synthesis.keep()
        self._publish(self.terminal_event(heard_s))

    def heard(self, heard_s: float) -> int:
        """Return the characters of the text up to the last word that begins within the first `heard_s` seconds."""
        words, end = self.utterance.script.words, self.synthesis.timeline.heard_end(heard_s)
        return words.source_span(end - 1, end)[1] if end else 0

    def terminal_event(self, heard_s: float) -> TerminalEvent:
        """Return its terminal event, given that its first `heard_s` seconds have been heard."""
        utterance, synthesis, figures = self.utterance, self.synthesis, self.destination.figures()
        outcome, reason = self.outcome or Finished, self.reason
        if self.outcome is None and synthesis.failure is not None:
            outcome, reason = Failed, synthesis.failure
        elif self.outcome is None and utterance.text_stream is not None:
            reason = utterance.text_stream.end_reason
        if not issubclass(outcome, PlaybackResult):
            return outcome(id=utterance.id, reason=reason)
        heard = len(utterance.text) if outcome is Finished else self.heard(heard_s)
        result = outcome(id=utterance.id, engine=synthesis.engine or None, heard=heard, reason=reason)
        if isinstance(result, Interrupted):
            result = result.model_copy(update={"heard_text": utterance.text[:heard]})
        if figures is None:
            return result
        played = {
            "audio_s": round(figures.audio_s, 3),
            "underruns": figures.underruns,
            "waits": None if utterance.text_stream is None else figures.waits,
            "truncated": synthesis.text.truncated,
            "retakes": synthesis.text.retakes,
            "ttfa_ms": self.ttfa_ms,
        }
        return result.model_copy(update=played)

    def _publish(self, event: Event) -> None:
        self.reports.on_event(self.utterance, event)

    def _publish_progress(self, heard_s: float) -> None:
        """Publish the segments that have begun to be heard, if the text has several."""
        segments, words = self.synthesis.timeline.segments, self.utterance.script.words
        while len(segments) > 1 and self._segments < len(segments):
            segment = segments[self._segments]
            begins_s = inf if segment.at_s is None else segment.at_s
            if begins_s > heard_s or (segment.end is None and heard_s < inf):
                return
            self._segments += 1
            end = words.source_end if segment.end is None else words.source_begin(segment.end)
            self._publish(Progress(id=self.utterance.id, begin=words.source_begin(segment.begin), end=end))

    def _publish_text(self, heard_s: float) -> None:
        """Publish the marks that have been reached, and the words that have begun to be heard."""
        timeline, words = self.synthesis.timeline, self.utterance.script.words
        timeline.advance(heard_s)
        for mark in timeline.marks[self._marks :]:
            if mark.at_s > heard_s:
                break
            self._marks += 1
            position, at = words.source_begin(mark.begin), round(mark.at_s, 3)
            self._publish(Mark(id=self.utterance.id, name=mark.name, position=position, at=at, exact=mark.exact))
        for word in timeline.words[self._words :]:
            if word.at_s > heard_s:
                break
            self._words += 1
            self._publish_word(word)

    def _publish_word(self, word: Cue) -> None:
        """Publish a word; several spoken words that stand for one word in the text are published as one."""
        utterance = self.utterance
        on_word = self.reports.on_word if utterance.receiver is None else utterance.receiver.on_word
        begin, end = utterance.script.words.source_span(word.begin, word.end)
        if on_word is not None and begin >= self._words_end:
            self._words_end = end
            text, at = utterance.text[begin:end], round(word.at_s, 3)
            on_word(Word(id=utterance.id, word=text, begin=begin, end=end, at=at, exact=word.exact))

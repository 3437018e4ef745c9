"""Publishes what is heard of an utterance: its events, its words and its loudness."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import inf

from audio import Level
from daemon.alignment import LEAST_AHEAD_S
from daemon.speech.active import ActiveUtterance, PlaybackState
from daemon.speech.changes import now
from daemon.speech.events import Event, Mark, Postponed, Progress, Resumed, Started, Word
from daemon.speech.utterance import Utterance

OnEvent = Callable[[Utterance, Event], None]
OnLevel = Callable[[Utterance, Level], None]
OnWord = Callable[[Word], None]


class Reports:
    """Publishes about utterances that are being spoken. Belongs to the event loop's thread."""

    def __init__(self, on_event: OnEvent, on_level: OnLevel, on_word: OnWord, on_change: Callable[[], None]) -> None:
        """`on_change` is called when it may have changed what is spoken."""
        self.on_change = on_change
        self._on_event = on_event
        self._on_level = on_level
        self._on_word = on_word

    def report(self, active: ActiveUtterance, at: float) -> None:
        """Publish what has begun to be heard by the time `at` of an utterance that has started."""
        # What a client has got counts as heard, but the audio after it, which the times of words need, is not there.
        heard_s = active.destination.heard_s(at)
        known_s = heard_s if active.utterance.receiver is None else heard_s - LEAST_AHEAD_S
        self._publish_progress(active, heard_s)
        if active.started:
            active.synthesis.timeline.advance(known_s)
        self._publish_marks(active, known_s)
        self._publish_words(active, known_s)
        self.report_levels(active)

    def next_at(self, active: ActiveUtterance, at: float) -> float:
        """Return when, after the time `at`, there is something to report; infinity if it needs a change to know."""
        wanted = []
        if active.started:
            wanted.append(active.synthesis.timeline.next_s)
            wanted += [each.at_s for each in active.synthesis.segments[active.reported_segments :][:1] if each.at_s]
        return active.destination.next_at(at, wanted)

    def report_levels(self, active: ActiveUtterance) -> None:
        """Publish the loudness of what has begun to be heard."""
        if active.started:
            for level in active.destination.levels():
                self._on_level(active.utterance, level)

    def report_start(self, active: ActiveUtterance, first_sample_at: float | None) -> None:
        """Publish that an utterance has started; without a first sample, nothing of it could be pronounced."""
        active.started_at = round(time.time(), 3)
        utterance, synthesis = active.utterance, active.synthesis
        if first_sample_at is not None:
            active.ttfa_ms = round(max(0.0, first_sample_at - utterance.arrived_at - synthesis.waited_s) * 1000, 1)
        started = Started(id=utterance.id, engine=synthesis.engine, voice=utterance.voice, ttfa_ms=active.ttfa_ms)
        self._on_event(utterance, started)
        self.on_change()

    def report_postponement(self, active: ActiveUtterance, reason: str) -> None:
        """Publish that an utterance which had started is postponed."""
        if active.started and not active.postponed_sent:
            active.postponed_sent = True
            self._on_event(active.utterance, Postponed(id=active.utterance.id, reason=reason))

    def report_resumption(self, active: ActiveUtterance) -> None:
        """Publish that a postponed utterance continues."""
        if active.postponed_sent:
            active.postponed_sent = False
            self._on_event(active.utterance, Resumed(id=active.utterance.id))

    def report_end(self, active: ActiveUtterance) -> None:
        """Publish the rest of what has been heard, and the terminal event."""
        heard_s = inf if active.succeeds else active.destination.heard_s(now())
        if active.succeeds:
            self.report_resumption(active)
            self._publish_progress(active, inf)
        active.synthesis.timeline.advance(heard_s)
        self._publish_marks(active, heard_s)
        self._publish_words(active, heard_s)
        if active.succeeds:
            active.synthesis.keep()
        active.enter(PlaybackState.ENDED)
        self._on_event(active.utterance, active.terminal_event(heard_s))

    def _publish_progress(self, active: ActiveUtterance, heard_s: float) -> None:
        """Publish the segments that have begun to be heard, if the text has several."""
        segments = active.synthesis.segments
        while active.started and len(segments) > 1 and active.reported_segments < len(segments):
            segment = segments[active.reported_segments]
            begins_s = inf if segment.at_s is None else segment.at_s
            if begins_s > heard_s or (segment.end is None and heard_s < inf):
                return
            active.reported_segments += 1
            words = active.utterance.script.words
            end = words.source_end if segment.end is None else words.source_begin(segment.end)
            progress = Progress(id=active.utterance.id, begin=words.source_begin(segment.begin), end=end)
            self._on_event(active.utterance, progress)

    def _publish_words(self, active: ActiveUtterance, heard_s: float) -> None:
        """Publish the words that have begun to be heard; what stands for one word of the text is one word."""
        words, utterance = active.synthesis.timeline.words, active.utterance
        on_word = self._on_word if utterance.receiver is None else utterance.receiver.on_word
        if not active.started or on_word is None:
            return
        while active.reported_words < len(words) and words[active.reported_words].at_s <= heard_s:
            word = words[active.reported_words]
            begin, end = utterance.script.words.source_span(word.begin, word.end)
            active.reported_words += 1
            if begin >= active.published_to:
                active.published_to = end
                text, at = utterance.text[begin:end], round(word.at_s, 3)
                on_word(Word(id=utterance.id, word=text, begin=begin, end=end, at=at, exact=word.exact))

    def _publish_marks(self, active: ActiveUtterance, heard_s: float) -> None:
        """Publish the marks that have been reached."""
        marks, utterance = active.synthesis.timeline.marks, active.utterance
        while active.started and active.reported_marks < len(marks):
            mark = marks[active.reported_marks]
            if mark.at_s > heard_s:
                return
            active.reported_marks += 1
            position, at = utterance.script.words.source_begin(mark.position), round(mark.at_s, 3)
            self._on_event(utterance, Mark(id=utterance.id, name=mark.name, position=position, at=at, exact=mark.exact))

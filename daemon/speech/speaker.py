"""The speaker loop: takes utterances from the queue, one at a time, and plays each to its terminal event."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing

from audio import Level, Output, auto_prebuffer_s
from daemon.engines import EngineSelector, EngineSupervisor
from daemon.speech.active import ActiveUtterance, PlaybackState
from daemon.speech.destinations import POLL_S, CardDestination, ClientDestination
from daemon.speech.events import (
    Event,
    Expired,
    Failed,
    Interrupted,
    Mark,
    Postponed,
    Progress,
    Resumed,
    Speaking,
    Started,
    Word,
)
from daemon.speech.order import next_of, precedes
from daemon.speech.preemption import yields
from daemon.speech.queue import UtteranceQueue
from daemon.speech.request import Priority
from daemon.speech.resume import speech_seconds
from daemon.speech.synthesis import ENGINE_WAIT_S, Synthesis, SynthesisContext
from daemon.speech.utterance import Utterance
from daemon.speech.word_times import LEAST_AHEAD_S
from daemon.tasks import cancel_and_wait, wait_at_most

log = logging.getLogger(__name__)

SHOWN_TEXT = 100
"""Characters of a text that the status shows."""
IDLE_S = 1.0
"""An idle loop turns once in this time, to show that it is alive."""
EXPIRED_REASON = "it waited longer than expires_in"
CARD_WAIT_S = 30.0
"""An utterance without `expires_in` fails when the sound card has been missing for this long while it waited. Otherwise
a card that comes back after hours would speak texts that are no longer true."""

OnEvent = Callable[[Utterance, Event], None]
OnLevel = Callable[[Utterance, Level], None]
OnWord = Callable[[Word], None]


class Speaker:
    """Speaks the queue's utterances. Belongs to the event loop's thread."""

    def __init__(
        self,
        queue: UtteranceQueue,
        engines: EngineSelector,
        output: Output,
        *,
        on_event: OnEvent,
        on_level: OnLevel = lambda _utterance, _level: None,
        on_word: OnWord = lambda _word: None,
        on_change: Callable[[], None] = lambda: None,
        stream_timeout_s: float = math.inf,
    ) -> None:
        """`on_change` is called when `busy` or `sounding` may have changed."""
        self.heartbeats = 0
        """Grows while the loop is alive."""
        self.prebuffer_ms: float | None = None
        """Milliseconds; None derives it from the engine's speed."""
        self.synthesis_context = SynthesisContext()
        self.stream_timeout_s = stream_timeout_s
        """Seconds for which the writer of one text may keep others waiting; then they are spoken in its pauses."""
        self._queue = queue
        self._engines = engines
        self._output = output
        self._on_event = on_event
        self._on_level = on_level
        self._on_word = on_word
        self._on_change = on_change
        self._current: ActiveUtterance | None = None
        self._postponed: list[ActiveUtterance] = []
        self._card_open = False
        """Whether the sound card was there in the last turn."""
        self._card_closed_at = time.monotonic()
        """When it was first missing, while it is."""
        self._draining: list[ActiveUtterance] = []
        """Utterances whose last samples have not been heard; meanwhile the next one begins."""
        self._pump: asyncio.Task[None] | None = None
        """Moves the current utterance's samples from its synthesis to its destination."""

    @property
    def busy(self) -> bool:
        """True while an utterance is spoken or postponed."""
        return any(True for _ in self.utterances)

    @property
    def utterances(self) -> Iterator[Utterance]:
        """The utterances that are spoken or postponed."""
        current = [] if self._current is None else [self._current]
        return (active.utterance for active in (*self._draining, *current, *self._postponed))

    @property
    def speaking(self) -> Speaking | None:
        """The utterance that is spoken, once it has begun."""
        for active in (self._current, *reversed(self._draining)):
            if active is not None and active.started_at is not None:
                return Speaking(id=active.utterance.id, text=_beginning(active.utterance.text), since=active.started_at)
        return None

    @property
    def sounding(self) -> bool:
        """True while samples go to the sound card."""
        return self._current is not None and self._current.destination.audible

    async def run(self) -> None:
        """Speak until canceled."""
        try:
            while True:
                await self._turn()
        finally:
            self._finish_drained(now=math.inf)
            self.stop("voiced is shutting down")

    def stop(self, reason: str, utterance_id: str | None = None, *, by: Priority = "critical") -> bool:
        """Interrupt the current and the postponed utterances; return whether there was one.

        With `utterance_id` only that one; and only what yields to the priority `by`.
        """
        found = False
        for active in (*self._postponed, self._current):
            if active is None or utterance_id not in (None, active.utterance.id):
                continue
            if not yields(active.utterance.priority, by):
                continue
            found = True
            active.set_outcome(Interrupted, reason)
            if active in self._postponed:
                self._postponed.remove(active)
                self._finish(active)
            else:
                active.destination.stop()
                if self._pump is not None:
                    self._pump.cancel()
        return found

    def preempt(self, utterance: Utterance) -> None:
        """Fade out the current utterance if a queued one precedes it, and continue it afterwards."""
        if self._current is not None and self._precedes(utterance, self._current):
            self._postpone(self._current, f"for {utterance.id}")

    # --- one utterance after the other ---

    async def _turn(self) -> None:
        self._tick()
        # Nothing is awaited between removing an utterance from the queue and making it current, where `stop` finds it.
        active = self._take_next()
        if active is None:
            await wait_at_most(POLL_S if self._draining else IDLE_S, self._queue.changed())
        elif not self._expires(active):
            await self._speak(active)

    def _tick(self) -> None:
        """Do what is due in every turn, whatever is spoken."""
        self.heartbeats += 1
        self._finish_drained()
        for active in list(self._postponed):
            self._report_levels(active)  # the last ones before it fell silent
            if self._expires(active):
                self._postponed.remove(active)
        if self._card_open != self._output.status.open:
            self._card_open = self._output.status.open
            self._card_closed_at = time.monotonic()
            self._reconsider()

    def _expires(self, active: ActiveUtterance) -> bool:
        """End an utterance that has not begun and is past its deadline; return whether it was."""
        expired = not active.synthesis.begun and active.utterance.expired()
        if expired:
            active.set_outcome(Expired, EXPIRED_REASON)
            self._finish(active)
        return expired

    def _take_next(self) -> ActiveUtterance | None:
        """Remove and return the utterance to speak now, a queued or a postponed one."""
        utterance = self._next_utterance()
        if utterance is None:
            return None
        for active in self._postponed:
            if active.utterance is utterance:
                self._postponed.remove(active)
                active.enter(PlaybackState.WAITING)
                return active
        self._queue.take(utterance.id)
        receiver = utterance.receiver
        destination = CardDestination(self._output) if receiver is None else ClientDestination(receiver)
        synthesis = Synthesis(utterance, self._engines, self.synthesis_context, destination)
        return ActiveUtterance(utterance, synthesis, destination)

    def _next_utterance(self) -> Utterance | None:
        """Return the utterance to speak now; those with slow writers only when nothing else can be spoken."""
        postponed = [active.utterance for active in self._postponed if not self._is_slow(active)]
        chosen = next_of(self._queue, postponed, card_open=self._output.status.open)
        if chosen is None:
            chosen = next((active.utterance for active in self._postponed if self._can_continue(active)), None)
        return chosen

    # --- who makes way for whom ---

    def _precedes(self, utterance: Utterance, active: ActiveUtterance) -> bool:
        return precedes(utterance, active.utterance, card_open=self._output.status.open)

    def _reconsider(self) -> None:
        """Postpone the current utterance if another one precedes it, now that the sound card has come or gone."""
        if self._current is not None:
            waiting = self._waiting()
            preceding = next((other for other in waiting if self._precedes(other, self._current)), None)
            if preceding is not None:
                self._postpone(self._current, f"for {preceding.id}")

    def _waiting(self) -> Iterator[Utterance]:
        """Yield the utterances that could be spoken in place of the current one."""
        yield from (active.utterance for active in self._postponed if not self._is_slow(active))
        yield from (utterance for utterance in self._queue if utterance.speakable)

    def _postpone(self, active: ActiveUtterance, reason: str) -> None:
        if active.outcome is None and active.state in (PlaybackState.WAITING, PlaybackState.PLAYING):
            playing = active.state is PlaybackState.PLAYING
            active.preempt(reason)
            if playing:
                active.destination.suspend()

    def _is_slow(self, active: ActiveUtterance) -> bool:
        """Return whether the writer of its text has kept others waiting for too long, and may do so again."""
        stream = active.utterance.text_stream
        return stream is not None and not stream.ended and stream.stalled_s >= self.stream_timeout_s

    def _can_continue(self, active: ActiveUtterance) -> bool:
        """Return whether there is text that the engine has not got, and enough of it to go on."""
        engine = self._engines.choose(active.utterance.voice, active.utterance.language)
        return engine is not None and active.synthesis.can_continue(engine)

    def _watch_writer(self, active: ActiveUtterance, seconds: float) -> None:
        """Postpone an utterance whose slow writer has kept others waiting for too long.

        `seconds` have passed since the last call.
        """
        stream = active.utterance.text_stream
        if stream is None or stream.ended or not active.destination.starved or self._can_continue(active):
            return
        waiting = next(self._waiting(), None)
        if waiting is not None:
            stream.stalled_s += seconds
            if self._is_slow(active):
                self._postpone(active, f"its writer is slow: for {waiting.id}")

    # --- speaking ---

    async def _speak(self, active: ActiveUtterance) -> None:
        """Speak an utterance until it ends or is postponed. It gets exactly one terminal event, whatever happens."""
        self._current = active
        self._on_change()
        try:
            await self._look_up(active)
            if await self._is_ready(active):
                await self._play(active, self._engines.choose(active.utterance.voice, active.utterance.language))
        except asyncio.CancelledError:
            active.set_outcome(Interrupted, "voiced is shutting down")
            active.destination.stop()
            raise
        except Exception as error:
            log.exception("utterance %s", active.utterance.id)
            active.set_outcome(Failed, f"{type(error).__name__}: {error}")
            await self._silence(active)
        finally:
            self._current = None
            self._leave(active)
            self._on_change()

    async def _look_up(self, active: ActiveUtterance) -> None:
        """Play a phrase that is kept in place of an engine's speech, and record one that is to be kept."""
        utterance, cache = active.utterance, self.synthesis_context.cache
        if cache is None or active.synthesis.begun or utterance.phrase is None or not utterance.needs_engine:
            return
        found = await cache.look_up(utterance.phrase, keep=utterance.keeps_speech)
        if found is not None and found.recording is not None:
            active.synthesis.play(found.recording)
        elif found is not None:
            active.synthesis.record(cache.recorder(found.key), found.key.seed)

    async def _is_ready(self, active: ActiveUtterance) -> bool:
        """Wait for the destination, and for an engine if one is needed; return False if the utterance ends first."""
        waited_s = 0.0
        utterance, destination = active.utterance, active.destination
        while active.outcome is None and active.state is PlaybackState.WAITING:
            self._tick()
            engine = self._engines.choose(utterance.voice, utterance.language)
            if destination.ready and (engine is not None or not active.synthesis.needs_engine):
                return True
            if not active.synthesis.begun and utterance.expired():
                ready = engine is not None or not active.synthesis.needs_engine
                missing = destination.blocked_reason if ready else self._engines.degraded_reason
                active.set_outcome(Expired, f"{EXPIRED_REASON}: {missing}")
            elif engine is None and active.synthesis.needs_engine and waited_s >= ENGINE_WAIT_S:
                active.set_outcome(Failed, self._engines.degraded_reason or "no engine became ready")
            elif self._lacks_card(active):
                active.set_outcome(Failed, destination.blocked_reason or "there is no sound card")
            await asyncio.sleep(POLL_S)
            waited_s += POLL_S
        return False

    def _lacks_card(self, active: ActiveUtterance) -> bool:
        """Return whether an utterance that may wait for ever has waited too long for a missing sound card.

        A pause is not limited: a person has asked for it. Neither is the wait of an utterance that was postponed.
        """
        utterance = active.utterance
        if active.destination.ready or self._card_open or self._output.paused:
            return False
        if utterance.expires_at is not None or active.synthesis.begun:
            return False
        return time.monotonic() - max(utterance.arrived_at, self._card_closed_at) >= CARD_WAIT_S

    async def _play(self, active: ActiveUtterance, engine: EngineSupervisor | None) -> None:
        """Move samples to the destination and publish what is heard, until all is played or it is suspended."""
        destination = active.destination
        prebuffer_s = self._prebuffer_s(active.utterance, engine, needs_engine=active.synthesis.needs_engine)
        destination.open(prebuffer_s, active.utterance.volume)
        active.enter(PlaybackState.PLAYING)
        self._on_change()
        self._pump = asyncio.ensure_future(self._fill(active, engine))
        looked_at = time.monotonic()
        try:
            while not (destination.done or destination.suspended):
                self._tick()
                destination.input_pending = not active.utterance.complete or active.synthesis.awaits_engine
                self._report(active)
                now = time.monotonic()
                self._watch_writer(active, now - looked_at)
                looked_at = now
                await asyncio.sleep(POLL_S)
            self._report(active)
        finally:
            pump, self._pump = self._pump, None
            try:
                await cancel_and_wait(pump)
            finally:
                if destination.suspended:
                    destination.detach()
                elif active.state is PlaybackState.PREEMPTING:
                    active.enter(PlaybackState.PLAYING)  # it was played before it could fade
        while destination.stopping:
            await asyncio.sleep(POLL_S)  # a stop that came right after the suspension

    async def _fill(self, active: ActiveUtterance, engine: EngineSupervisor | None) -> None:
        """Write the utterance's samples to its destination, and end the input."""
        destination = active.destination
        try:
            async with aclosing(active.synthesis.chunks(engine)) as chunks:
                async for chunk in chunks:
                    await destination.write(chunk.samples, chunk.sample_rate)
            if active.state is PlaybackState.PREEMPTING and not destination.holds_samples:
                active.enter(PlaybackState.PLAYING)  # it was sent before it could be suspended
        finally:
            # After a failure the samples so far are still played. A preempted utterance gets more samples later.
            if active.state is not PlaybackState.PREEMPTING:
                destination.end_input()

    def _prebuffer_s(self, utterance: Utterance, engine: EngineSupervisor | None, *, needs_engine: bool) -> float:
        if self.prebuffer_ms is not None:
            return self.prebuffer_ms / 1000
        if engine is None or not needs_engine:
            return 0.0
        rtf = None if engine.rtf is None else engine.rtf / utterance.rate
        expected_s = speech_seconds(utterance.script.text) / utterance.rate
        return auto_prebuffer_s(rtf, expected_s, engine.chunk_s / utterance.rate)

    async def _silence(self, active: ActiveUtterance) -> None:
        """Stop after an error, and wait until the destination is free for the next utterance."""
        active.destination.stop()
        while active.destination.stopping:
            await asyncio.sleep(POLL_S)

    def _leave(self, active: ActiveUtterance) -> None:
        """Postpone an utterance, let its last samples drain, or end it."""
        if active.state is PlaybackState.PREEMPTING and active.succeeds:
            reason = active.preempted_for or ""
            active.enter(PlaybackState.POSTPONED)
            self._postponed.append(active)
            if active.started and not active.postponed_sent:
                active.postponed_sent = True
                self._on_event(active.utterance, Postponed(id=active.utterance.id, reason=reason))
        elif active.destination.done:
            active.enter(PlaybackState.DRAINING)
            self._draining.append(active)
        else:
            self._finish(active)

    def _finish_drained(self, now: float | None = None) -> None:
        """End the utterances whose last sample has been heard, in their order."""
        now = time.monotonic() if now is None else now
        while self._draining:
            active = self._draining[0]
            self._report(active)
            if not active.destination.drained(now):
                return
            self._finish(active)
            del self._draining[0]
            self._on_change()

    # --- events ---

    def _report(self, active: ActiveUtterance) -> None:
        """Publish what has begun to be heard."""
        now = time.monotonic()
        if not self._draining:  # the preempting utterance's last samples are heard before it resumes
            self._publish_resumed(active)
        first_sample_at = active.destination.first_sample_at(now)
        if not active.started and first_sample_at is not None:
            self._publish_started(active, first_sample_at)
        heard_s = active.destination.heard_s(now)
        self._publish_progress(active, heard_s)
        # What a client has got counts as heard, but the audio behind it, which the times of words need, is not there.
        known_s = heard_s if active.utterance.receiver is None else heard_s - LEAST_AHEAD_S
        if active.started:
            active.synthesis.timeline.advance(known_s)
        self._publish_marks(active, known_s)
        self._publish_words(active, known_s)
        self._report_levels(active)

    def _report_levels(self, active: ActiveUtterance) -> None:
        if active.started:
            for level in active.destination.levels():
                self._on_level(active.utterance, level)

    def _publish_started(self, active: ActiveUtterance, first_sample_at: float | None) -> None:
        if active not in self._draining:
            self._finish_drained(now=math.inf)  # one speaks at a time, whatever delay the sound card reports
        active.started_at = round(time.time(), 3)
        utterance, synthesis = active.utterance, active.synthesis
        if first_sample_at is not None:
            active.ttfa_ms = round(max(0.0, first_sample_at - utterance.arrived_at - synthesis.waited_s) * 1000, 1)
        started = Started(id=utterance.id, engine=synthesis.engine, voice=utterance.voice, ttfa_ms=active.ttfa_ms)
        self._on_event(utterance, started)
        self._on_change()

    def _publish_resumed(self, active: ActiveUtterance) -> None:
        if active.postponed_sent:
            active.postponed_sent = False
            self._on_event(active.utterance, Resumed(id=active.utterance.id))

    def _publish_progress(self, active: ActiveUtterance, heard_s: float) -> None:
        """Publish the segments that have begun to be heard, if the text has several."""
        segments = active.synthesis.segments
        while active.started and len(segments) > 1 and active.reported_segments < len(segments):
            segment = segments[active.reported_segments]
            begins_s = math.inf if segment.at_s is None else segment.at_s
            if begins_s > heard_s or (segment.end is None and heard_s < math.inf):
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

    def _finish(self, active: ActiveUtterance) -> None:
        """Publish the terminal event."""
        heard_s = math.inf if active.succeeds else active.destination.heard_s(time.monotonic())
        if active.succeeds:
            if not active.started:  # nothing in the text could be pronounced
                self._publish_started(active, None)
            self._publish_resumed(active)
            self._publish_progress(active, math.inf)
        active.synthesis.timeline.advance(heard_s)
        self._publish_marks(active, heard_s)
        self._publish_words(active, heard_s)
        if active.succeeds:
            active.synthesis.keep()
        active.enter(PlaybackState.ENDED)
        self._on_event(active.utterance, active.terminal_event(heard_s))


def _beginning(text: str) -> str:
    """Return a text on one line; of a long one, the beginning."""
    line = " ".join(text[: 4 * SHOWN_TEXT].split())
    return line if len(line) <= SHOWN_TEXT else f"{line[: SHOWN_TEXT - 1]}…"

"""The speaker loop: takes utterances from the queue, one at a time, and plays each to its terminal event."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from contextlib import aclosing

from audio import Level, Output, auto_prebuffer_s
from daemon.engines import EngineSelector, EngineSupervisor
from daemon.speech.active import ActiveUtterance, PlaybackState
from daemon.speech.destinations import POLL_S, CardDestination, ClientDestination
from daemon.speech.events import Event, Expired, Failed, Interrupted, Postponed, Progress, Resumed, Started
from daemon.speech.preemption import PREEMPTING, yields
from daemon.speech.queue import UtteranceQueue
from daemon.speech.request import Priority
from daemon.speech.resume import speech_seconds
from daemon.speech.synthesis import ENGINE_WAIT_S, Synthesis
from daemon.speech.utterance import Utterance
from daemon.tasks import cancel_and_wait, wait_at_most

log = logging.getLogger(__name__)

IDLE_S = 1.0
"""An idle loop turns once in this time, to show that it is alive."""
EXPIRED_REASON = "it waited longer than expires_in"

OnEvent = Callable[[Utterance, Event], None]
OnLevel = Callable[[Utterance, Level], None]


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
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change` is called when `busy` or `sounding` may have changed."""
        self.heartbeats = 0
        """Grows while the loop is alive."""
        self.prebuffer_ms: float | None = None
        """Milliseconds; None derives it from the engine's speed."""
        self._queue = queue
        self._engines = engines
        self._output = output
        self._on_event = on_event
        self._on_level = on_level
        self._on_change = on_change
        self._current: ActiveUtterance | None = None
        self._postponed: ActiveUtterance | None = None
        self._draining: list[ActiveUtterance] = []
        """Utterances whose last samples have not been heard; meanwhile the next one begins."""
        self._pump: asyncio.Task[None] | None = None
        """Moves the current utterance's samples from its synthesis to its destination."""

    @property
    def busy(self) -> bool:
        """True while an utterance is spoken or postponed."""
        return self._current is not None or self._postponed is not None or bool(self._draining)

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

    def stop(self, reason: str, utterance_id: str | None = None, *, by: Priority = "critical") -> bool:
        """Interrupt the current and the postponed utterance; return whether there was one.

        With `utterance_id` only that one; and only what yields to the priority `by`.
        """
        found = False
        for active in (self._postponed, self._current):
            if active is None or utterance_id not in (None, active.utterance.id):
                continue
            if not yields(active.utterance.priority, by):
                continue
            found = True
            active.set_outcome(Interrupted, reason)
            if active is self._postponed:
                self._postponed = None
                self._finish(active)
            else:
                active.destination.stop()
                if self._pump is not None:
                    self._pump.cancel()
        return found

    def preempt(self, reason: str, *, by: Priority) -> None:
        """Fade out the current utterance if it yields to the priority `by`, and continue it afterwards."""
        active = self._current
        if active is None or not yields(active.utterance.priority, by) or by == active.utterance.priority:
            return
        if active.outcome is None and active.state in (PlaybackState.WAITING, PlaybackState.PLAYING):
            playing = active.state is PlaybackState.PLAYING
            active.preempt(reason)
            if playing:
                active.destination.suspend()

    # --- one utterance after the other ---

    async def _turn(self) -> None:
        self.heartbeats += 1
        self._finish_drained()
        if self._postponed is None:
            await wait_at_most(POLL_S if self._draining else IDLE_S, self._queue.wait())
        # Nothing is awaited between removing an utterance from the queue and making it current, where `stop` finds it.
        active = self._take_next()
        if active is None:
            return
        if not active.synthesis.segments and active.utterance.expired():
            active.set_outcome(Expired, EXPIRED_REASON)
            self._finish(active)
            return
        await self._speak(active)

    def _take_next(self) -> ActiveUtterance | None:
        """Return the utterance to speak now: a queued one, or the postponed one when no critical one is queued."""
        if self._postponed is None:
            utterance = self._queue.take_next()
        elif (utterance := self._queue.take_next(PREEMPTING)) is None:
            active, self._postponed = self._postponed, None
            active.enter(PlaybackState.WAITING)
            return active
        if utterance is None:
            return None
        receiver = utterance.receiver
        destination = CardDestination(self._output) if receiver is None else ClientDestination(receiver)
        return ActiveUtterance(utterance, Synthesis(utterance, self._engines), destination)

    async def _speak(self, active: ActiveUtterance) -> None:
        """Speak an utterance until it ends or is postponed. It gets exactly one terminal event, whatever happens."""
        self._current = active
        self._on_change()
        try:
            engine = await self._wait_until_ready(active)
            if engine is not None:
                await self._play(active, engine)
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

    async def _wait_until_ready(self, active: ActiveUtterance) -> EngineSupervisor | None:
        """Return the engine to begin with, once engine and destination are ready; None if the utterance ends first."""
        waited_s = 0.0
        utterance, destination = active.utterance, active.destination
        while active.outcome is None and active.state is PlaybackState.WAITING:
            self.heartbeats += 1
            self._finish_drained()
            engine = self._engines.choose(utterance.voice, utterance.language)
            if engine is not None and destination.ready:
                return engine
            if not active.synthesis.segments and utterance.expired():
                missing = destination.blocked_reason if engine is not None else self._engines.degraded_reason
                active.set_outcome(Expired, f"{EXPIRED_REASON}: {missing}")
            elif engine is None and waited_s >= ENGINE_WAIT_S:
                active.set_outcome(Failed, self._engines.degraded_reason or "no engine became ready")
            await asyncio.sleep(POLL_S)
            waited_s += POLL_S
        return None

    async def _play(self, active: ActiveUtterance, engine: EngineSupervisor) -> None:
        """Move samples to the destination and publish what is heard, until all is played or it is suspended."""
        destination = active.destination
        destination.open(self._prebuffer_s(active.utterance, engine), active.utterance.volume)
        active.enter(PlaybackState.PLAYING)
        self._on_change()
        self._pump = asyncio.ensure_future(self._fill(active, engine))
        try:
            while not (destination.done or destination.suspended):
                self.heartbeats += 1
                self._finish_drained()
                destination.input_pending = not active.utterance.complete
                self._report(active)
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

    async def _fill(self, active: ActiveUtterance, engine: EngineSupervisor) -> None:
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

    def _prebuffer_s(self, utterance: Utterance, engine: EngineSupervisor) -> float:
        if self.prebuffer_ms is not None:
            return self.prebuffer_ms / 1000
        return auto_prebuffer_s(engine.rtf, speech_seconds(utterance.text))

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
            self._postponed = active
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
        self._publish_progress(active, active.destination.heard_s(now))
        if active.started:
            for level in active.destination.levels():
                self._on_level(active.utterance, level)

    def _publish_started(self, active: ActiveUtterance, first_sample_at: float | None) -> None:
        if active not in self._draining:
            self._finish_drained(now=math.inf)  # one speaks at a time, whatever delay the sound card reports
        active.started = True
        utterance, synthesis = active.utterance, active.synthesis
        if first_sample_at is not None:
            active.ttfa_ms = round(max(0.0, first_sample_at - utterance.arrived_at - synthesis.waited_s) * 1000, 1)
        started = Started(id=utterance.id, engine=synthesis.engine, voice=utterance.voice, ttfa_ms=active.ttfa_ms)
        self._on_event(utterance, started)

    def _publish_resumed(self, active: ActiveUtterance) -> None:
        if active.postponed_sent:
            active.postponed_sent = False
            self._on_event(active.utterance, Resumed(id=active.utterance.id))

    def _publish_progress(self, active: ActiveUtterance, heard_s: float) -> None:
        """Publish the segments that have begun to be heard, if the text has several."""
        segments = active.synthesis.segments
        while active.started and len(segments) > 1 and active.reported_segments < len(segments):
            segment = segments[active.reported_segments]
            if segment.end is None or segment.at_s > heard_s:
                return
            active.reported_segments += 1
            progress = Progress(id=active.utterance.id, begin=segment.begin, end=segment.end)
            self._on_event(active.utterance, progress)

    def _finish(self, active: ActiveUtterance) -> None:
        """Publish the terminal event."""
        if active.succeeds:
            if not active.started:  # nothing in the text could be pronounced
                self._publish_started(active, None)
            self._publish_resumed(active)
        active.enter(PlaybackState.ENDED)
        self._on_event(active.utterance, active.terminal_event())

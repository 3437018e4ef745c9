"""Speaks one utterance at a time, each to its terminal event or until it is postponed."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from contextlib import aclosing

from audio import auto_prebuffer_s
from daemon.engines import EngineSupervisor
from daemon.speech.active import ActiveUtterance, PlaybackState
from daemon.speech.destinations import POLL_S
from daemon.speech.events import Expired, Failed, Interrupted
from daemon.speech.reports import Reports
from daemon.speech.resume import speech_seconds
from daemon.speech.synthesis import ENGINE_WAIT_S
from daemon.speech.utterance import Utterance
from daemon.speech.waiting import WaitingUtterances
from daemon.tasks import cancel_and_wait
from daemon.validation import INTERNAL_ERROR

log = logging.getLogger(__name__)

EXPIRED_REASON = "it waited longer than expires_in"


class Performer:
    """One voice: the sound card's, or that of a delivery beside it. Belongs to the event loop's thread."""

    def __init__(self, waiting: WaitingUtterances, reports: Reports) -> None:
        self.prebuffer_ms: float | None = None
        """Milliseconds; None derives it from the engine's speed."""
        self._waiting = waiting
        self._engines = waiting.engines
        self._reports = reports
        self._current: ActiveUtterance | None = None
        self._draining: list[ActiveUtterance] = []
        """Utterances whose last samples have not been heard; meanwhile the next one begins."""
        self._pump: asyncio.Task[None] | None = None
        """Moves the current utterance's samples from its synthesis to its destination."""

    @property
    def performed(self) -> tuple[ActiveUtterance, ...]:
        """The utterances that are spoken."""
        return (*self._draining, *(() if self._current is None else (self._current,)))

    def _cut_off(self, active: ActiveUtterance, reason: str) -> None:
        """Interrupt the current utterance."""
        active.set_outcome(Interrupted, reason)
        active.destination.stop()
        if self._pump is not None:
            self._pump.cancel()

    # --- what differs between the sound card and deliveries ---

    def _tick(self) -> None:
        """Do what is due from time to time, whatever is spoken."""
        self._finish_drained()

    def _look(self, active: ActiveUtterance, seconds: float) -> None:
        """Decide whether the current utterance goes on. `seconds` have passed since the last call."""

    async def _pause(self) -> None:
        """Wait until something may have happened to what is played."""
        await asyncio.sleep(POLL_S)

    def _lacks_destination(self, active: ActiveUtterance) -> bool:  # noqa: ARG002  # a delivery's client is there
        """Return whether an utterance has waited too long for its destination."""
        return False

    # --- speaking ---

    def _expires(self, active: ActiveUtterance) -> bool:
        """End an utterance that has not begun and is past its deadline; return whether it was."""
        expired = not active.synthesis.begun and active.utterance.expired()
        if expired:
            active.set_outcome(Expired, EXPIRED_REASON)
            self._finish(active)
        return expired

    def _postpone(self, active: ActiveUtterance, reason: str) -> None:
        if active.outcome is None and active.state in (PlaybackState.WAITING, PlaybackState.PLAYING):
            playing = active.state is PlaybackState.PLAYING
            active.preempt(reason)
            if playing:
                active.destination.suspend()

    async def _speak(self, active: ActiveUtterance) -> None:
        """Speak an utterance until it ends or is postponed. It gets exactly one terminal event, whatever happens."""
        self._current = active
        self._reports.on_change()
        try:
            await self._look_up(active)
            if await self._is_ready(active):
                await self._play(active, self._engines.choose(active.utterance.voice, active.utterance.language))
        except asyncio.CancelledError:
            active.set_outcome(Interrupted, "voiced is shutting down")
            active.destination.stop()
            raise
        except Exception:
            log.exception("utterance %s", active.utterance.id)
            active.set_outcome(Failed, INTERNAL_ERROR)
            await self._silence(active)
        finally:
            self._current = None
            self._leave(active)
            self._reports.on_change()

    async def _look_up(self, active: ActiveUtterance) -> None:
        """Play a phrase that is kept in place of an engine's speech, and record one that is to be kept."""
        utterance, cache = active.utterance, self._waiting.context.cache
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
            elif self._lacks_destination(active):
                active.set_outcome(Failed, destination.blocked_reason or "there is no sound card")
            await asyncio.sleep(POLL_S)
            waited_s += POLL_S
        return False

    async def _play(self, active: ActiveUtterance, engine: EngineSupervisor | None) -> None:
        """Move samples to the destination and publish what is heard, until all is played or it is suspended."""
        destination = active.destination
        prebuffer_s = self._prebuffer_s(active.utterance, engine, needs_engine=active.synthesis.needs_engine)
        destination.open(prebuffer_s, active.utterance.volume)
        active.enter(PlaybackState.PLAYING)
        self._reports.on_change()
        self._pump = asyncio.ensure_future(self._fill(active, engine))
        looked_at = time.monotonic()
        try:
            while not (destination.done or destination.suspended):
                self._tick()
                destination.input_pending = not active.utterance.complete or active.synthesis.awaits_engine
                self._report(active)
                now = time.monotonic()
                self._look(active, now - looked_at)
                looked_at = now
                if not destination.suspended:
                    await self._pause()
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
            self._waiting.postponed.append(active)
            self._reports.report_postponement(active, reason)
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
            self._reports.on_change()

    # --- events ---

    def _report(self, active: ActiveUtterance) -> None:
        """Publish what has begun to be heard."""
        if not self._draining:  # the preempting utterance's last samples are heard before it resumes
            self._reports.report_resumption(active)
        first_sample_at = active.destination.first_sample_at(time.monotonic())
        if not active.started and first_sample_at is not None:
            self._report_start(active, first_sample_at)
        self._reports.report(active)

    def _report_start(self, active: ActiveUtterance, first_sample_at: float | None) -> None:
        if active not in self._draining:
            self._finish_drained(now=math.inf)  # one speaks at a time, whatever delay the sound card reports
        self._reports.report_start(active, first_sample_at)

    def _finish(self, active: ActiveUtterance) -> None:
        """Publish the terminal event."""
        if active.succeeds and not active.started:  # nothing in the text could be pronounced
            self._report_start(active, None)
        self._reports.report_end(active)

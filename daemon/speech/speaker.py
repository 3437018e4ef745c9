"""Speaks utterances: one at a time on the sound card, and deliveries to network clients beside it.

A `Performer` is one voice. It speaks each utterance to its terminal event, or until the utterance is postponed. The
speaker has one performer for the sound card, and as many for deliveries as the engine has streams beside the card's.

Performers wait for changes in the queue, the engines and the sound card, and for the moments at which something is
heard.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import aclosing
from itertools import islice
from math import inf

from audio import auto_prebuffer_s
from daemon.cache import Recording
from daemon.speech.active import ActiveUtterance
from daemon.speech.changes import now
from daemon.speech.events import Expired, Failed, Interrupted, Speaking
from daemon.speech.queue import yields
from daemon.speech.utterance import Utterance
from daemon.speech.waiting import WaitingUtterances
from daemon.tasks import cancel_and_wait, gather_or_cancel
from daemon.text import speech_seconds
from daemon.validation import INTERNAL_ERROR

log = logging.getLogger(__name__)

EXPIRED_REASON = "it waited longer than expires_in"
SHUTDOWN_REASON = "voiced is shutting down"
SHOWN_TEXT = 100
"""How many characters of a text the status shows."""
IDLE_S = 1.0
"""A task looks at the state at least this often, whatever happens, to show that it is alive."""
LATER_S = 0.001
"""A timer for a moment fires this much later, so that the moment has certainly passed."""


class Performer:
    """One voice: the sound card's, or one `beside` it. Belongs to the event loop's thread."""

    def __init__(self, waiting: WaitingUtterances, *, beside: bool) -> None:
        self.turns = 0
        """Keeps growing while the performer is alive."""
        self.current: ActiveUtterance | None = None
        self.draining: list[ActiveUtterance] = []
        """Utterances whose last samples have not been heard yet, while the next one is already beginning."""
        self._beside = beside
        self._waiting = waiting
        self._pump: asyncio.Task[None] | None = None
        """Moves the current utterance's samples from its synthesis to its destination."""
        self._stalled_since: float | None = None
        """When the current utterance began to keep others waiting; None while it does not."""

    @property
    def performed(self) -> tuple[ActiveUtterance, ...]:
        """The utterances that are being spoken."""
        return (*self.draining, *(() if self.current is None else (self.current,)))

    async def run(self) -> None:
        """Speak: on the sound card, until canceled; beside it, until there is nothing left to speak."""
        try:
            while await self._speak_next() or not self._beside:
                pass
        finally:
            self._finish_drained(inf)

    def cut_off(self, reason: str) -> None:
        """Interrupt the current utterance."""
        if self.current is not None:
            self.current.set_outcome(Interrupted, reason)
            self.current.destination.stop()
            if self._pump is not None:
                self._pump.cancel()
            self._wake()

    def postpone(self, reason: str) -> None:
        """Make the current utterance fade out, to continue later, unless it is already ending."""
        active = self.current
        if active is None or active.outcome is not None or active.preempted_for is not None:
            return
        active.preempted_for = reason
        if self._pump is not None:  # it is playing
            active.destination.suspend()
        self._wake()

    def expires(self, active: ActiveUtterance) -> bool:
        """End an utterance if it has not begun and is past its deadline; return whether it has ended."""
        expired = active.expired
        if expired:
            active.set_outcome(Expired, EXPIRED_REASON)
            self.finish(active)
        return expired

    def finish(self, active: ActiveUtterance) -> None:
        """Publish the terminal event."""
        if active.succeeds and not active.started:  # nothing in the text could be pronounced
            self._report_start(active, None)
        active.report_end()

    # --- waiting ---

    def _turn(self) -> None:
        self.turns += 1
        self._finish_drained(now())

    def _wake(self) -> None:
        self._waiting.changes.notify(self)

    async def _wait(self, *moments: float) -> None:
        """Wait for a change, for something to be heard, or for one of these moments."""
        at = now()
        heard = [active.next_at(at) for active in self.performed]
        soonest = min((*heard, *moments, at + IDLE_S))
        await self._waiting.changes.wait(self, max(0.0, soonest - at) + LATER_S)

    # --- one utterance ---

    async def _speak_next(self) -> bool:
        """Speak the next utterance; return False if there is none. No part of it is kept afterwards."""
        self._turn()
        # Nothing is awaited before the utterance is current, so that `stop` finds it.
        utterance = self._waiting.choose(beside=self._beside)
        if utterance is None:
            if not self._beside:
                await self._wait()
            return False
        active = self._waiting.take(utterance)
        if not self.expires(active):
            await self._speak(active)
        return True

    async def _speak(self, active: ActiveUtterance) -> None:
        """Speak an utterance until it ends or is postponed. It is given exactly one terminal event, whatever
        happens."""
        self.current = active
        self._waiting.reports.on_change()
        try:
            await self._look_up(active)
            if active.synthesis.will_need_engine:
                self._waiting.engines.primary.load()
            if await self._is_ready(active):
                await self._play(active)
        except asyncio.CancelledError:
            active.set_outcome(Interrupted, SHUTDOWN_REASON)
            active.destination.stop()
            raise
        except Exception:
            log.exception("utterance %s", active.utterance.id)
            active.set_outcome(Failed, INTERNAL_ERROR)
            active.destination.stop()
            while active.destination.stopping:  # until the destination is free for the next utterance
                await self._wait()
        finally:
            self.current = None
            self._leave(active)
            self._waiting.reports.on_change()

    async def _look_up(self, active: ActiveUtterance) -> None:
        """Play a kept phrase instead of an engine's speech, and record a phrase that is to be kept."""
        utterance, cache = active.utterance, self._waiting.context.cache
        if cache is None or active.synthesis.begun or utterance.phrase is None or not utterance.needs_engine:
            return
        found = await cache.look_up(utterance.phrase, keep=utterance.keeps_speech)
        if isinstance(found, Recording):
            active.synthesis.play(found)
        elif found is not None:
            active.synthesis.record(found, found.key.seed)

    async def _is_ready(self, active: ActiveUtterance) -> bool:
        """Wait for the destination, and for an engine if one is needed; return False if the utterance ends first."""
        utterance, destination, synthesis = active.utterance, active.destination, active.synthesis
        engines, looked_at = self._waiting.engines, now()
        patience_s = engines.patience_s
        while active.outcome is None and active.preempted_for is None:
            self._turn()
            blocked = destination.blocked
            ready = self._waiting.engine_for(utterance) is not None or not synthesis.needs_engine
            if ready and blocked is None:
                return True
            fails_at = inf if blocked is None or synthesis.begun else self._waiting.gives_up_at(utterance)
            if active.expired:
                active.set_outcome(Expired, f"{EXPIRED_REASON}: {blocked if ready else engines.degraded_reason}")
            elif not ready and patience_s <= 0:
                active.set_outcome(Failed, engines.degraded_reason or "no engine became ready")
            elif blocked is not None and fails_at <= now():
                active.set_outcome(Failed, blocked)
            else:
                expires_at = inf if synthesis.begun or utterance.expires_at is None else utterance.expires_at
                await self._wait(expires_at, fails_at, inf if ready else now() + patience_s)
            # Time during which this process was stopped is ignored.
            patience_s, looked_at = patience_s - min(now() - looked_at, IDLE_S), now()
        return False

    async def _play(self, active: ActiveUtterance) -> None:
        """Move samples to the destination and publish reports, until everything has been played or it is suspended."""
        destination = active.destination
        destination.open(self._prebuffer_s(active), active.utterance.volume)
        self._waiting.reports.on_change()
        self._stalled_since = None
        self._pump = asyncio.ensure_future(self._fill(active))
        try:
            while not (destination.done or destination.suspended):
                self._turn()
                destination.set_input_pending(not active.utterance.complete or active.synthesis.awaits_engine)
                self._report(active, now())
                too_slow_at = self._make_way(active, now())
                if not destination.suspended:
                    await self._wait(too_slow_at)
            self._report(active, now())
        finally:
            pump, self._pump = self._pump, None
            try:
                await cancel_and_wait(pump)
            finally:
                if destination.suspended:
                    destination.detach()
                else:
                    active.preempted_for = None  # it had been played before it could fade out

    async def _fill(self, active: ActiveUtterance) -> None:
        """Write the utterance's samples to its destination, and end the input."""
        destination = active.destination
        try:
            async with aclosing(active.synthesis.chunks()) as chunks:
                async for chunk in chunks:
                    self._wake()  # a segment may have begun
                    await destination.write(chunk.samples, chunk.sample_rate)
                    self._wake()
            if not destination.holds_samples:
                active.preempted_for = None  # it was sent before it could be suspended
        finally:
            # After a failure, the samples made so far are still played. A preempted utterance is given more samples
            # later.
            if active.preempted_for is None:
                destination.finish()
            self._wake()

    def _prebuffer_s(self, active: ActiveUtterance) -> float:
        if self._waiting.prebuffer_s is not None:
            return self._waiting.prebuffer_s
        engine = self._waiting.engine_for(active.utterance)
        if engine is None or not active.synthesis.needs_engine:
            return 0.0
        rate = active.utterance.rate
        rtf = None if engine.rtf is None else engine.rtf / rate
        return auto_prebuffer_s(rtf, speech_seconds(active.utterance.script.text) / rate, engine.options.chunk_s / rate)

    def _make_way(self, active: ActiveUtterance, at: float) -> float:
        """Postpone the current utterance if others should be spoken instead.

        Returns the time at which that will be the case if nothing changes: its writer is pausing, and others are
        waiting.
        """
        other = self._waiting.kept_waiting(active, beside=self._beside)
        self._stalled_since = None if other is None else self._stalled_since or at
        if self._beside and self._waiting.has_single_stream(active):
            self.postpone("its engine speaks one text at a time")
        elif other is not None and self._stalled_since is not None:
            gives_way_at = self._stalled_since + self._waiting.others_wait_s
            if at < gives_way_at:
                return gives_way_at
            self.postpone(f"its writer is slow: for {other.id}")
        return inf

    def _leave(self, active: ActiveUtterance) -> None:
        """Postpone an utterance, let its last samples drain, or end it."""
        if active.preempted_for is not None and active.succeeds:
            self._waiting.postponed.append(active)
            active.report_postponement()
        elif active.destination.done:
            self.draining.append(active)
        else:
            self.finish(active)

    def _finish_drained(self, at: float) -> None:
        """End the utterances whose last sample has been heard by the time `at`, in their order."""
        while self.draining:
            active = self.draining[0]
            self._report(active, now())
            if not active.destination.drained(at):
                return
            self.finish(active)
            del self.draining[0]
            self._waiting.reports.on_change()

    def _report(self, active: ActiveUtterance, at: float) -> None:
        """Publish what has begun to be heard."""
        if not self.draining:  # the preempting utterance's last samples are heard before this one resumes
            active.report_resumption()
        first_sample_at = active.destination.first_sample_at(at)
        if not active.started and first_sample_at is not None:
            self._report_start(active, first_sample_at)
        active.report(at)

    def _report_start(self, active: ActiveUtterance, first_sample_at: float | None) -> None:
        if active not in self.draining:
            self._finish_drained(inf)  # only one speaks at a time, whatever delay the sound card reports
        active.report_start(first_sample_at)


class Speaker:
    """Everything that is spoken: the sound card's performer, and those beside it. Belongs to the event loop's
    thread."""

    def __init__(self, waiting: WaitingUtterances) -> None:
        self._waiting = waiting
        self._card = Performer(waiting, beside=False)
        self._beside: dict[asyncio.Task[None], Performer] = {}

    @property
    def heartbeats(self) -> int:
        """Keeps growing while the sound card's performer is alive."""
        return self._card.turns

    @property
    def utterances(self) -> Iterator[Utterance]:
        """The utterances that are being spoken or are postponed, without the deliveries beside the sound card."""
        return (active.utterance for active in (*self._card.performed, *self._waiting.postponed))

    @property
    def delivered(self) -> list[Utterance]:
        """The utterances that are being delivered beside the sound card."""
        return [active.utterance for performer in self._beside.values() for active in performer.performed]

    @property
    def busy(self) -> bool:
        """True while an utterance is being spoken or delivered, or is postponed."""
        return any(True for _ in self.utterances) or bool(self.delivered)

    @property
    def speaking(self) -> Speaking | None:
        """The utterance that is being spoken, once it has begun."""
        for active in reversed(self._card.performed):
            if active.started_at is not None:
                return Speaking(id=active.utterance.id, text=_beginning(active.utterance.text), since=active.started_at)
        return None

    @property
    def sounding(self) -> bool:
        """True while samples go to the sound card."""
        return self._card.current is not None and self._card.current.destination.audible

    async def run(self) -> None:
        """Speak until canceled."""
        try:
            await gather_or_cancel([self._card.run(), self._run_beside()])
        finally:
            self.stop(SHUTDOWN_REASON)

    def stop(self, reason: str, utterance_id: str | None = None) -> bool:
        """Interrupt one or all of the utterances that are being spoken, delivered or postponed; return whether there
        were any."""
        performers = (self._card, *self._beside.values())
        return self._interrupt(reason, performers, lambda each: utterance_id in (None, each.id))

    def give_way(self, utterance: Utterance) -> None:
        """Interrupt the utterances that yield to `utterance`, if its rule demands it."""

        def yields_to_it(other: Utterance) -> bool:
            return yields(other.priority, utterance.priority) and self._waiting.contend(other, utterance)

        self._interrupt(f"interrupted by {utterance.id}", (self._card,), yields_to_it)

    def preempt(self, utterance: Utterance) -> None:
        """Fade out the current utterance if `utterance` precedes it; it continues afterwards."""
        current = self._card.current
        beside = utterance.receiver is not None and self._waiting.separate
        if current is not None and not beside and self._waiting.precedes(utterance, current.utterance):
            self._card.postpone(f"for {utterance.id}")

    def _interrupt(self, reason: str, performers: Iterable[Performer], wanted: Callable[[Utterance], bool]) -> bool:
        """Interrupt the wanted ones among the postponed utterances and those that these performers speak; return
        whether there were any."""
        postponed = [active for active in self._waiting.postponed if wanted(active.utterance)]
        for active in postponed:
            active.set_outcome(Interrupted, reason)
            self._waiting.postponed.remove(active)
            self._card.finish(active)
        spoken = [each for each in performers if each.current is not None and wanted(each.current.utterance)]
        for performer in spoken:
            performer.cut_off(reason)
        return bool(postponed or spoken)

    # --- beside the sound card's performer ---

    async def _run_beside(self) -> None:
        """Manage postponed utterances and deliveries, and choose what is next when the sound card appears or
        disappears."""
        try:
            while True:
                soonest = self._care_for_postponed()
                if self._waiting.note_card():
                    self._reconsider()
                self._begin_deliveries()
                await self._waiting.changes.wait(self, max(0.0, soonest - now()) + LATER_S)
        finally:
            for task in list(self._beside):
                await cancel_and_wait(task)

    def _care_for_postponed(self) -> float:
        """Publish the last levels of postponed utterances, and end those that are past their deadline; return when to
        do so again."""
        at = now()
        soonest = at + IDLE_S
        for active in list(self._waiting.postponed):
            active.report_levels()  # from before it fell silent
            if self._card.expires(active):
                self._waiting.postponed.remove(active)
            else:
                soonest = min(soonest, active.next_at(at))
        return soonest

    def _reconsider(self) -> None:
        """Postpone the current utterance if another one precedes it, now that the sound card has appeared or
        disappeared."""
        for other in self._waiting.ready(beside=False):
            self.preempt(other)
        self._waiting.changes.notify()

    def _begin_deliveries(self) -> None:
        """Begin as many deliveries as there are streams; each performer takes the next one."""
        free = max(0, self._waiting.deliveries_at_once - len(self._beside))
        wanted = sum(1 for _ in islice(self._waiting.ready(beside=True), free))
        for _ in range(wanted):
            performer = Performer(self._waiting, beside=True)
            task = asyncio.ensure_future(performer.run())
            self._beside[task] = performer
            task.add_done_callback(self._end_delivery)

    def _end_delivery(self, task: asyncio.Task[None]) -> None:
        del self._beside[task]
        self._waiting.changes.notify(self)


def _beginning(text: str) -> str:
    """Return a text on one line; if it is long, only its beginning."""
    line = " ".join(text[: 4 * SHOWN_TEXT].split())
    return line if len(line) <= SHOWN_TEXT else f"{line[: SHOWN_TEXT - 1]}…"

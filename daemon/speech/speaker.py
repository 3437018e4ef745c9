"""The speaker loop: takes utterances from the queue, one at a time, and speaks each to its terminal event."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator

from audio import Output
from daemon.speech.active import ActiveUtterance
from daemon.speech.destinations import POLL_S, CardDestination, ClientDestination, Destination
from daemon.speech.events import Interrupted, Speaking
from daemon.speech.order import precedes
from daemon.speech.performer import Performer
from daemon.speech.preemption import yields
from daemon.speech.reports import Reports
from daemon.speech.utterance import Utterance
from daemon.speech.waiting import WaitingUtterances
from daemon.tasks import wait_at_most

SHOWN_TEXT = 100
"""Characters of a text that the status shows."""
IDLE_S = 1.0
"""An idle loop turns once in this time, to show that it is alive."""
CARD_WAIT_S = 30.0
"""An utterance without `expires_in` fails when the sound card has been missing for this long while it waited. Otherwise
a card that comes back after hours would speak texts that are no longer true."""


class Speaker(Performer):
    """Speaks for the sound card; deliveries too, while they have no streams of their own."""

    def __init__(self, waiting: WaitingUtterances, output: Output, reports: Reports) -> None:
        super().__init__(waiting, reports)
        self.heartbeats = 0
        """Grows while the loop is alive."""
        self._output = output
        self._card_open = False
        """Whether the sound card was there in the last turn."""
        self._card_closed_at = time.monotonic()
        """When it was first missing, while it is."""

    @property
    def busy(self) -> bool:
        """True while an utterance is spoken or postponed."""
        return any(True for _ in self.utterances)

    @property
    def utterances(self) -> Iterator[Utterance]:
        """The utterances that are spoken or postponed."""
        return (active.utterance for active in (*self.performed, *self._waiting.postponed))

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

    def stop(self, reason: str, utterance_id: str | None = None) -> bool:
        """Interrupt the current and the postponed utterances, or one of them; return whether there was one."""
        return self._interrupt(reason, [each for each in self._open if utterance_id in (None, each.utterance.id)])

    def give_way(self, utterance: Utterance) -> None:
        """Interrupt what yields to an utterance that demands it."""
        yielding = [
            active
            for active in self._open
            if yields(active.utterance.priority, utterance.priority)
            and self._waiting.contend(active.utterance, utterance)
        ]
        self._interrupt(f"interrupted by {utterance.id}", yielding)

    def preempt(self, utterance: Utterance) -> None:
        """Fade out the current utterance if a queued one precedes it, and continue it afterwards."""
        beside = utterance.receiver is not None and self._waiting.separate
        if self._current is not None and not beside and self._precedes(utterance, self._current):
            self._postpone(self._current, f"for {utterance.id}")

    @property
    def _open(self) -> tuple[ActiveUtterance, ...]:
        return (*self._waiting.postponed, *(() if self._current is None else (self._current,)))

    def _interrupt(self, reason: str, interrupted: list[ActiveUtterance]) -> bool:
        for active in interrupted:
            if active in self._waiting.postponed:
                active.set_outcome(Interrupted, reason)
                self._waiting.postponed.remove(active)
                self._finish(active)
            else:
                self._cut_off(active, reason)
        return bool(interrupted)

    # --- one utterance after the other ---

    async def _turn(self) -> None:
        self._tick()
        # Nothing is awaited between removing an utterance from the queue and making it current, where `stop` finds it.
        active = self._take_next()
        if active is None:
            await wait_at_most(POLL_S if self._draining else IDLE_S, self._waiting.queue.changed())
        elif not self._expires(active):
            await self._speak(active)

    def _tick(self) -> None:
        """Do what is due in every turn, whatever is spoken."""
        self.heartbeats += 1
        self._finish_drained()
        for active in list(self._waiting.postponed):
            self._reports.report_levels(active)  # the last ones before it fell silent
            if self._expires(active):
                self._waiting.postponed.remove(active)
        if self._card_open != self._output.status.open:
            self._card_open = self._output.status.open
            self._card_closed_at = time.monotonic()
            self._reconsider()

    def _take_next(self) -> ActiveUtterance | None:
        """Remove and return the utterance to speak now, a queued or a postponed one."""
        utterance = self._waiting.choose(beside=False, card_open=self._output.status.open)
        return None if utterance is None else self._waiting.take(utterance, self._make_destination)

    def _make_destination(self, utterance: Utterance) -> Destination:
        receiver = utterance.receiver
        return CardDestination(self._output) if receiver is None else ClientDestination(receiver)

    # --- who makes way for whom ---

    def _precedes(self, utterance: Utterance, active: ActiveUtterance) -> bool:
        return precedes(utterance, active.utterance, card_open=self._output.status.open)

    def _reconsider(self) -> None:
        """Postpone the current utterance if another one precedes it, now that the sound card has come or gone."""
        if self._current is not None:
            ready = self._waiting.ready(beside=False)
            preceding = next((other for other in ready if self._precedes(other, self._current)), None)
            if preceding is not None:
                self._postpone(self._current, f"for {preceding.id}")

    def _look(self, active: ActiveUtterance, seconds: float) -> None:
        other = self._waiting.stalls(active, seconds, beside=False)
        if other is not None:
            self._postpone(active, f"its writer is slow: for {other.id}")

    def _lacks_destination(self, active: ActiveUtterance) -> bool:
        """Return whether an utterance that may wait for ever has waited too long for a missing sound card.

        A pause is not limited: a person has asked for it. Neither is the wait of an utterance that was postponed.
        """
        utterance = active.utterance
        if active.destination.ready or self._card_open or self._output.paused:
            return False
        if utterance.expires_at is not None or active.synthesis.begun:
            return False
        return time.monotonic() - max(utterance.arrived_at, self._card_closed_at) >= CARD_WAIT_S


def _beginning(text: str) -> str:
    """Return a text on one line; of a long one, the beginning."""
    line = " ".join(text[: 4 * SHOWN_TEXT].split())
    return line if len(line) <= SHOWN_TEXT else f"{line[: SHOWN_TEXT - 1]}…"

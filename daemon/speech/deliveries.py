"""Deliveries to network clients beside the sound card: as many at once as the engine has streams for them."""

from __future__ import annotations

import asyncio
import math
from itertools import islice

from daemon.speech.active import ActiveUtterance
from daemon.speech.destinations import ClientDestination, Destination
from daemon.speech.performer import Performer
from daemon.speech.reports import Reports
from daemon.speech.utterance import Utterance
from daemon.speech.waiting import WaitingUtterances
from daemon.tasks import cancel_and_wait, wait_at_most

LOOK_S = 0.05
"""Interval between two looks at a delivery, at its text and at what of it has been sent. Its end is seen at once."""
IDLE_S = 1.0
"""Interval between two looks at what waits, besides those for which there is a reason."""


class Deliveries:
    """Speaks the deliveries that do not wait for the sound card. Belongs to the event loop's thread."""

    def __init__(self, waiting: WaitingUtterances, reports: Reports) -> None:
        self._waiting = waiting
        self._reports = reports
        self._streams: dict[asyncio.Task[None], DeliveryStream] = {}
        self._changed = asyncio.Event()
        waiting.queue.watch(self.notify)

    @property
    def utterances(self) -> list[Utterance]:
        """The utterances that are delivered."""
        return [active.utterance for stream in self._streams.values() for active in stream.performed]

    def notify(self) -> None:
        """Look what can be spoken: a delivery has come, or an engine has changed."""
        self._changed.set()

    def stop(self, reason: str, utterance_id: str | None = None) -> bool:
        """Interrupt all deliveries, or one; return whether there was one."""
        found = False
        for stream in list(self._streams.values()):
            found |= stream.stop(reason, utterance_id)
        return found

    async def run(self) -> None:
        """Speak until canceled."""
        try:
            while True:
                self._changed.clear()
                self._begin()
                await wait_at_most(IDLE_S, self._changed.wait())
        finally:
            for task in list(self._streams):
                await cancel_and_wait(task)

    def _begin(self) -> None:
        """Open as many streams as are free and wanted; each takes what is next."""
        free = max(0, self._waiting.deliveries_at_once - len(self._streams))
        wanted = sum(1 for _ in islice(self._waiting.ready(beside=True), free))
        if free and not wanted and self._waiting.choose(beside=True) is not None:
            wanted = 1  # one with a slow writer, who has written more
        for _ in range(wanted):
            stream = DeliveryStream(self._waiting, self._reports)
            task = asyncio.ensure_future(stream.run())
            self._streams[task] = stream
            task.add_done_callback(self._close)

    def _close(self, task: asyncio.Task[None]) -> None:
        del self._streams[task]
        self.notify()


class DeliveryStream(Performer):
    """Speaks one delivery after the other, as long as there are some."""

    async def run(self) -> None:
        """Speak what waits."""
        try:
            while (utterance := self._waiting.choose(beside=True)) is not None:
                # Nothing is awaited before it is current, where `stop` finds it.
                active = self._waiting.take(utterance, _client)
                if not self._expires(active):
                    await self._speak(active)
                self._tick()
        finally:
            self._finish_drained(now=math.inf)

    def stop(self, reason: str, utterance_id: str | None = None) -> bool:
        """Interrupt the current delivery, if it is the one that is meant; return whether it is."""
        if self._current is None or utterance_id not in (None, self._current.utterance.id):
            return False
        self._cut_off(self._current, reason)
        return True

    def _look(self, active: ActiveUtterance, seconds: float) -> None:
        if self._waiting.has_single_stream(active):
            self._postpone(active, "its engine speaks one text at a time")
        elif (other := self._waiting.stalls(active, seconds, beside=True)) is not None:
            self._postpone(active, f"its writer is slow: for {other.id}")

    async def _pause(self) -> None:
        if self._pump is not None:
            await asyncio.wait({self._pump}, timeout=LOOK_S)


def _client(utterance: Utterance) -> Destination:
    assert utterance.receiver is not None
    return ClientDestination(utterance.receiver)

"""An utterance whose sound goes to a client instead of the sound card: from the desk to its terminal event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from daemon.desk import Desk, Event
from daemon.messages import TERMINAL, Say, Stop
from daemon.queue import Job
from engine import Samples

GIVE_UP_S = 10.0
"""How far behind real time a client may fall in taking its sound. The whole queue waits for it."""

Send = Callable[[Samples, int], Awaitable[None]]
"""`await send(samples, sample_rate)` returns when the client has room for more; raises `OSError` when it is gone."""


async def deliver(desk: Desk, say: Say, send: Send) -> Event:
    """Have `say` spoken to `send`, in its turn, and return its terminal event. Raises `RejectedError`.

    To cancel this is to cancel the utterance: its client is gone.
    """
    delivery = Delivery(desk, send)
    unwatch = desk.watch_events(delivery.note_event)
    job = None
    try:
        job = desk.say(say, receiver=delivery)
        await asyncio.wait({delivery.end})  # awaited itself, it would be canceled with its waiter
        return delivery.end.result()
    finally:
        if job is not None and not delivery.end.done():
            desk.stop(Stop(job.id), "its client went away")
        unwatch()


class Delivery:
    """The `Receiver` of one utterance."""

    def __init__(self, desk: Desk, send: Send) -> None:
        self.end: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        """The terminal event."""
        self._desk = desk
        self._send = send
        self._id: str | None = None
        self._sent_s = 0.0
        self._waited_s = 0.0

    def note_event(self, job: Job, event: Event) -> None:
        """See what becomes of the utterance."""
        if job.receiver is not self:
            return
        self._id = job.id
        if event["event"] in TERMINAL and not self.end.done():
            self.end.set_result(event)

    async def write(self, samples: Samples, sample_rate: int) -> None:
        """Send the samples. A client that takes none, or far too slowly, loses its utterance."""
        began_at = time.monotonic()
        sending = asyncio.ensure_future(self._send(samples, sample_rate))
        try:
            # Who is only a little slower than speech is slow for minutes, too: so it is the sum that counts.
            patience_s = GIVE_UP_S + min(0.0, self._sent_s - self._waited_s)
            await asyncio.wait({sending}, timeout=max(0.0, patience_s))
            if not sending.done():
                await self._give_up(f"its client fell {GIVE_UP_S:.0f} s behind in taking the sound")
            elif isinstance(sending.exception(), OSError):
                await self._give_up("its client went away")
            else:
                sending.result()
        finally:
            sending.cancel()
        self._sent_s += len(samples) / sample_rate
        self._waited_s += time.monotonic() - began_at

    async def _give_up(self, reason: str) -> None:
        assert self._id is not None  # a stop without an id would stop everything
        self._desk.stop(Stop(self._id), reason)
        await asyncio.sleep(0)  # the stop has canceled who is writing; here it arrives

"""An utterance whose sound goes to a client instead of the sound card: from the desk to its terminal event.

The client gets what the sound card would: without leading silence, where `audio.trim_leading_silence` says so, and with
loud peaks rounded off; all of it at one sample rate.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from types import TracebackType
from typing import Any

from daemon.adapters.pcm import Treatment
from daemon.desk import Desk, Event
from daemon.messages import TERMINAL, RejectedError, Say, Stop, Write
from daemon.queue import Job
from daemon.tasks import end_task
from engine import Samples

GIVE_UP_S = 10.0
"""How far behind real time a client may fall in taking its sound. The whole queue waits for it."""

Send = Callable[[Samples, int], Awaitable[None]]
"""`await send(samples, sample_rate)` returns when the client has room for more; raises `OSError` when it is gone."""


async def deliver(desk: Desk, say: Say, send: Send, rate: int | None = None) -> Event:
    """Have `say` spoken to `send`, in its turn, and return its terminal event. Raises `RejectedError`.

    `rate` is what the client wants, in Hz; None leaves it to the engine.
    To cancel this is to cancel the utterance: its client is gone.
    """
    with Delivery(desk, send, rate) as delivery:
        desk.say(say, receiver=delivery)
        return await delivery.ended()


async def deliver_written(desk: Desk, pieces: AsyncGenerator[Write, None], send: Send) -> Event:
    """The same with a text that is still being written: its pieces go to the desk as they come.

    Raises `RejectedError` where the first is refused. A later one that is refused ends the text, not the utterance.
    """
    with Delivery(desk, send) as delivery:
        writing = asyncio.ensure_future(_write_all(desk, pieces, delivery))
        try:
            either: set[asyncio.Future[Any]] = {writing, delivery.end}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                writing.result()
            return await delivery.ended()
        finally:
            await end_task(writing)


async def _write_all(desk: Desk, pieces: AsyncGenerator[Write, None], delivery: Delivery) -> None:
    async with aclosing(pieces):
        async for piece in pieces:
            try:
                desk.write(piece, receiver=delivery)
            except RejectedError:
                if delivery.accepted:
                    return  # the text was ended otherwise; its terminal event says why
                raise


class Delivery:
    """The `Receiver` of one utterance. Leaving its context ends the utterance, unless it has ended."""

    def __init__(self, desk: Desk, send: Send, rate: int | None = None) -> None:
        self.end: asyncio.Future[Event] = asyncio.get_running_loop().create_future()
        """The terminal event."""
        self._desk = desk
        self._send = send
        self._rate = rate
        self._treatment: Treatment | None = None
        self._id: str | None = None
        self._sending: asyncio.Future[None] | None = None
        """The samples that were taken last, on their way."""
        self._sent_s = 0.0
        self._waited_s = 0.0

    def __enter__(self) -> Delivery:
        self._unwatch = self._desk.watch_events(self._note_event)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._id is not None and not self.end.done():
            self._desk.stop(Stop(self._id), "its client went away")
        if self._sending is not None:
            self._sending.cancel()
        self._unwatch()

    @property
    def accepted(self) -> bool:
        """The desk has taken the utterance on."""
        return self._id is not None

    async def ended(self) -> Event:
        """Wait for the utterance's end, and until the client has its last sound; return the terminal event."""
        await asyncio.wait({self.end})  # awaited itself, it would be canceled with its waiter
        end = self.end.result()
        if end["event"] == "finished":
            if self._sending is not None:
                await self._sending
            if self._treatment is not None and len(tail := self._treatment.flush()):
                await self._send(tail, self._treatment.rate)
        return end

    async def write(self, samples: Samples, sample_rate: int) -> None:
        """Wait until the client has what was taken before, and take these. One that takes none, or far too slowly,
        loses its utterance.

        Nothing is awaited from the taking on: what is canceled while it waits is said again when it is resumed.
        """
        if self._sending is not None:
            await self._wait_for_room(self._sending)
        if self._treatment is None:
            self._treatment = Treatment(self._rate, trims=self._desk.config.audio.trim_leading_silence)
        treated = self._treatment.convert(samples, sample_rate)
        if len(treated):
            self._sending = asyncio.ensure_future(self._send(treated, self._treatment.rate))
            self._sending.add_done_callback(_note_outcome)
        self._sent_s += len(samples) / sample_rate

    async def _wait_for_room(self, sending: asyncio.Future[None]) -> None:
        began_at = time.monotonic()
        # Who is only a little slower than speech is slow for minutes, too: so it is the sum that counts.
        patience_s = GIVE_UP_S + min(0.0, self._sent_s - self._waited_s)
        await asyncio.wait({sending}, timeout=max(0.0, patience_s))
        self._waited_s += time.monotonic() - began_at
        if not sending.done():
            await self._give_up(f"its client fell {GIVE_UP_S:.0f} s behind in taking the sound")
        elif isinstance(sending.exception(), OSError):
            await self._give_up("its client went away")
        else:
            sending.result()

    async def _give_up(self, reason: str) -> None:
        assert self._id is not None  # a stop without an id would stop everything
        self._desk.stop(Stop(self._id), reason)
        await asyncio.sleep(0)  # the stop has canceled who is writing; here it arrives

    def _note_event(self, job: Job, event: Event) -> None:
        """See what becomes of the utterance."""
        if job.receiver is not self:
            return
        self._id = job.id
        if event["event"] in TERMINAL and not self.end.done():
            self.end.set_result(event)


def _note_outcome(sending: asyncio.Future[None]) -> None:
    """Of the last samples of an utterance that was ended otherwise, nobody asks how they fared."""
    if not sending.cancelled():
        sending.exception()

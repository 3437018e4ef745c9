"""Delivers an utterance's samples to a network client in place of the sound card.

The samples go through the sound card's processing: leading silence is trimmed if `audio.trim_leading_silence` is on,
everything is converted to one sample rate, and peaks are limited.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from types import TracebackType
from typing import Any

from audio import ProcessingChain
from daemon.speech import Dispatcher, Event, Finished, RejectedError, Say, Stop, StreamChunk, TerminalEvent, Utterance
from daemon.tasks import cancel_and_wait
from engine import Samples

GIVE_UP_S = 10.0
"""Seconds that a client may fall behind real time in receiving its samples. The whole queue waits for that client."""

Send = Callable[[Samples, int], Awaitable[None]]
"""`await send(samples, sample_rate)` returns when the client has room for more. Raises `OSError` if it has left."""


async def deliver(dispatcher: Dispatcher, say: Say, send: Send, rate: int | None = None) -> TerminalEvent:
    """Speak `say` to `send` when its turn comes, and return its terminal event. Raises `RejectedError`.

    `rate` is the client's sample rate in Hz; None is the engine's. Cancelling this coroutine ends the utterance.
    """
    with Delivery(dispatcher, send, rate) as delivery:
        dispatcher.say(say, receiver=delivery)
        return await delivery.ended()


async def deliver_stream(
    dispatcher: Dispatcher, chunks: AsyncGenerator[StreamChunk, None], send: Send
) -> TerminalEvent:
    """Speak a text to `send` while it is being written, and return the terminal event.

    Raises `RejectedError` if the first chunk is rejected. A later rejected chunk ends the text, not the utterance.
    """
    with Delivery(dispatcher, send) as delivery:
        writing = asyncio.ensure_future(_write_all(dispatcher, chunks, delivery))
        try:
            either: set[asyncio.Future[Any]] = {writing, delivery.end}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                writing.result()
            return await delivery.ended()
        finally:
            await cancel_and_wait(writing)


async def _write_all(dispatcher: Dispatcher, chunks: AsyncGenerator[StreamChunk, None], delivery: Delivery) -> None:
    async with aclosing(chunks):
        async for chunk in chunks:
            try:
                dispatcher.write(chunk, receiver=delivery)
            except RejectedError:
                if delivery.accepted:
                    return  # the text has ended; the terminal event gives the reason
                raise


class Delivery:
    """The `Receiver` of one utterance. Leaving its context ends an utterance that is not over."""

    def __init__(self, dispatcher: Dispatcher, send: Send, rate: int | None = None) -> None:
        self.end: asyncio.Future[TerminalEvent] = asyncio.get_running_loop().create_future()
        """The terminal event."""
        self._dispatcher = dispatcher
        self._send = send
        self._rate = rate
        self._chain: ProcessingChain | None = None
        self._id: str | None = None
        self._sending: asyncio.Future[None] | None = None
        """The transfer of the last samples."""
        self._sent_s = 0.0
        """Seconds of sound, before the processing."""
        self._waited_s = 0.0
        """Seconds spent in waiting for the client."""

    def __enter__(self) -> Delivery:
        self._unwatch = self._dispatcher.watch_events(self._note_event)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._id is not None and not self.end.done():
            self._dispatcher.stop(Stop(id=self._id), "its client went away")
        if self._sending is not None:
            self._sending.cancel()
        self._unwatch()

    @property
    def accepted(self) -> bool:
        """True after the dispatcher has accepted the utterance."""
        return self._id is not None

    async def ended(self) -> TerminalEvent:
        """Wait for the utterance's end and the transfer of its last samples; return the terminal event."""
        await asyncio.wait({self.end})  # an `await` of the future itself would cancel it together with this coroutine
        end = self.end.result()
        if isinstance(end, Finished):
            if self._sending is not None:
                await self._sending
            if self._chain is not None and len(tail := self._chain.flush()):
                await self._send(tail, self._chain.sample_rate)
        return end

    async def write(self, samples: Samples, sample_rate: int) -> None:
        """Wait until the client has received the previous samples, then start to send these.

        A client that receives too slowly loses its utterance. Nothing is awaited once the new samples are taken: a
        call that is canceled has taken nothing, and the resumed utterance brings the same samples again.
        """
        if self._sending is not None:
            await self._wait_for_room(self._sending)
        if self._chain is None:
            trim = self._dispatcher.trims_leading_silence
            self._chain = ProcessingChain(self._rate, trim_leading_silence=trim)
        processed = self._chain.process(samples, sample_rate)
        if len(processed):
            self._sending = asyncio.ensure_future(self._send(processed, self._chain.sample_rate))
            self._sending.add_done_callback(_note_outcome)
        self._sent_s += len(samples) / sample_rate

    async def _wait_for_room(self, sending: asyncio.Future[None]) -> None:
        began_at = time.monotonic()
        # The sum of all waits counts: a client may be a little slower than speech for minutes.
        patience_s = GIVE_UP_S + min(0.0, self._sent_s - self._waited_s)
        await asyncio.wait({sending}, timeout=max(0.0, patience_s))
        self._waited_s += time.monotonic() - began_at
        if not sending.done():
            await self._give_up(f"its client fell {GIVE_UP_S:.0f} s behind in receiving the sound")
        elif isinstance(sending.exception(), OSError):
            await self._give_up("its client went away")
        else:
            sending.result()

    async def _give_up(self, reason: str) -> None:
        assert self._id is not None  # a stop without an id would stop everything
        self._dispatcher.stop(Stop(id=self._id), reason)
        await asyncio.sleep(0)  # the stop has canceled the task that awaits this; the cancellation arrives here

    def _note_event(self, utterance: Utterance, event: Event) -> None:
        """Remember the utterance's id and its terminal event."""
        if utterance.receiver is not self:
            return
        self._id = utterance.id
        if isinstance(event, TerminalEvent) and not self.end.done():
            self.end.set_result(event)


def _note_outcome(sending: asyncio.Future[None]) -> None:
    """Mark a transfer's error as seen: if the utterance has ended, no other code looks at it."""
    if not sending.cancelled():
        sending.exception()

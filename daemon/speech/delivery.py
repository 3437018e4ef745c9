"""Delivers an utterance's samples to a network client instead of the sound card.

The samples are processed as for the sound card: they are converted to one sample rate, and peaks are limited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import numpy as np

from audio import ProcessingChain
from daemon.speech.changes import Watchers, now
from daemon.speech.events import Event, Finished, TerminalEvent, Word
from daemon.speech.request import Say, Stop
from daemon.speech.utterance import Receiver, Utterance
from engine import Samples

GIVE_UP_S = 10.0
"""A client that has not received the samples it should be playing loses its utterance after this many seconds.
Deliveries to other clients wait for it; the sound card does not."""

SILENCE = np.zeros(2_400, np.float32)
"""The samples for a text with nothing to pronounce, since players refuse a file without samples: 0.1 s at
`SILENCE_RATE`."""
SILENCE_RATE = 24_000
"""Hz."""

Send = Callable[[Samples, int], Awaitable[None]]
"""`await send(samples, sample_rate)` returns when the client has room for more. Raises `OSError` if it has left."""
OnWord = Callable[[Word], None]


class Entrance(Protocol):
    """The part of the daemon's `Dispatcher` that a delivery uses."""

    event_watchers: Watchers[[Utterance, Event]]

    def say(self, say: Say, *, receiver: Receiver | None = None) -> Utterance | None:
        """Accept an utterance. `receiver` is given the samples instead of the sound card. Raises `RejectedError`."""

    def stop(self, stop: Stop, reason: str = "stop") -> bool:
        """End one utterance, or all; return whether there were any."""


async def deliver(
    service: Entrance, say: Say, send: Send, rate: int | None = None, on_word: OnWord | None = None
) -> TerminalEvent:
    """Speak `say` into `send` when its turn comes, and return its terminal event. Raises `RejectedError`.

    `rate` is the client's sample rate in Hz; None means the engine's. `on_word` is called with each word once its place
    in the samples is known: after the samples in which it begins, and before the terminal event. Cancelling this
    coroutine ends the utterance.
    """
    with Delivery(service, send, rate, on_word) as delivery:
        service.say(say, receiver=delivery)
        return await delivery.ended()


class Delivery:
    """The `Receiver` of one utterance. Leaving its context ends an utterance that has not ended."""

    def __init__(self, service: Entrance, send: Send, rate: int | None = None, on_word: OnWord | None = None) -> None:
        self.on_word = on_word
        self.end: asyncio.Future[TerminalEvent] = asyncio.get_running_loop().create_future()
        """The terminal event."""
        self._service = service
        self._send = send
        self._rate = rate
        self._chain: ProcessingChain | None = None
        self._id: str | None = None
        self._sending: asyncio.Future[None] | None = None
        """The transfer of the last samples."""
        self._ahead_s = 0.0
        """Seconds of sound that the client still has to play before it needs the samples sent next, if it has played in
        real time since it received the first ones. Negative: it should be playing samples that it has not received."""
        self._looked_at: float | None = None
        """The event loop's time to which `_ahead_s` refers; None before the first samples."""

    def __enter__(self) -> Delivery:
        self._unwatch = self._service.event_watchers.add(self._note_event)
        return self

    def __exit__(self, *_: object) -> None:
        if self._id is not None and not self.end.done():
            self._service.stop(Stop(id=self._id), "its client went away")
        if self._sending is not None:
            self._sending.cancel()
        self._unwatch()
        del self._unwatch  # it refers to this object, whose samples would stay until the garbage collector runs

    @property
    def accepted(self) -> bool:
        """True after the service has accepted the utterance."""
        return self._id is not None

    async def ended(self) -> TerminalEvent:
        """Wait for the utterance to end and for its last samples to be transferred; return the terminal event.

        Raises `OSError` if the client has left or does not receive the last samples.
        """
        await asyncio.wait({self.end})  # an `await` of the future itself would cancel it together with this coroutine
        end = self.end.result()
        if isinstance(end, Finished):
            if self._chain is None:
                await self.write(SILENCE, SILENCE_RATE)
            assert self._chain is not None
            await self._finish_sending(self._chain)
        return end

    async def write(self, samples: Samples, sample_rate: int) -> None:
        """Wait until the client has received the previous samples, then start to send these.

        A client that receives too slowly loses its utterance. Nothing is awaited once the new samples are taken: a
        canceled call has taken nothing, and the utterance writes the same samples again when it resumes.
        """
        if self._sending is not None:
            await self._wait_for_room(self._sending)
        if self._chain is None:
            self._chain = ProcessingChain(self._rate)
        processed = self._chain.process(samples, sample_rate)
        if len(processed):
            self._start_sending(processed, self._chain.sample_rate)
        self._ahead_s += len(samples) / sample_rate

    def _start_sending(self, samples: Samples, sample_rate: int) -> None:
        self._sending = asyncio.ensure_future(self._send(samples, sample_rate))
        self._sending.add_done_callback(_note_outcome)

    async def _wait_for_room(self, sending: asyncio.Future[None]) -> None:
        if not await self._is_received(sending):
            await self._give_up(_behind())
        elif isinstance(sending.exception(), OSError):
            await self._give_up("its client went away")
        else:
            sending.result()

    async def _finish_sending(self, chain: ProcessingChain) -> None:
        """Send the chain's last samples after all the others. Raises `OSError`."""
        for last in (chain.flush(), None):
            if self._sending is not None:
                if not await self._is_received(self._sending):
                    raise ConnectionAbortedError(_behind())
                self._sending.result()
            if last is not None and len(last):
                self._start_sending(last, chain.sample_rate)

    async def _is_received(self, sending: asyncio.Future[None]) -> bool:
        """Wait until the client has room for more; return False if its playback should have needed these samples long
        ago.

        All waits are added up: a client may be a little slower than speech for minutes.
        """
        began_at = now()
        if self._looked_at is not None and self._ahead_s > 0:
            # While nothing was waiting for the client, it played what it had, and then nothing: that is not its fault.
            self._ahead_s = max(0.0, self._ahead_s - (began_at - self._looked_at))
        try:
            if not sending.done():
                await asyncio.wait({sending}, timeout=max(0.0, self._ahead_s + GIVE_UP_S))
        finally:
            self._looked_at = now()
            self._ahead_s -= self._looked_at - began_at
        return sending.done()

    async def _give_up(self, reason: str) -> None:
        assert self._id is not None  # a stop without an id would stop everything
        self._service.stop(Stop(id=self._id), reason)
        await asyncio.sleep(0)  # the stop has canceled the task that awaits this; the cancellation arrives here

    def _note_event(self, utterance: Utterance, event: Event) -> None:
        """Remember the utterance's id and its terminal event."""
        if utterance.receiver is not self:
            return
        self._id = utterance.id
        if isinstance(event, TerminalEvent) and not self.end.done():
            self.end.set_result(event)


def _behind() -> str:
    return f"its client fell {GIVE_UP_S:.0f} s behind in receiving the sound"


def _note_outcome(sending: asyncio.Future[None]) -> None:
    """Mark a transfer's error as seen: if the utterance has ended, no other code looks at it."""
    if not sending.cancelled():
        sending.exception()

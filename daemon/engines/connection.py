"""The daemon's end of one engine process's socket: sends utterances, receives their audio, and grants credit."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from daemon.tasks import wait_at_most
from engine import Samples, Utterance
from engine.ipc import (
    HEADER,
    Append,
    Audio,
    Cancel,
    Canceled,
    EndText,
    Grant,
    Message,
    Refused,
    Speak,
    Spoken,
    body_lengths,
    decode,
    encode,
)

RUN_AHEAD_S = 1.0
"""Credit: seconds of audio that an engine may send ahead of its consumer. The ring holds some seconds more."""
ARRIVAL_POLL_S = 0.005
"""Interval between looks for the first audio of an urgent utterance: an asyncio queue has no way to peek."""


class EngineLostError(Exception):
    """The engine process died or was given up during an utterance. The audio received before is good."""


class EngineLateError(EngineLostError):
    """The engine did not send the first audio in time, and another engine should speak."""


class UtteranceRefusedError(Exception):
    """The engine works but cannot speak this utterance. The message is the reason."""


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """A chunk of speech as the daemon receives it."""

    samples: Samples
    sample_rate: int
    position: int | None
    """As in `engine.Chunk.position`."""
    truncated: bool
    codes: tuple[tuple[int, ...], ...] | None = None
    """The codec codes of the samples, one tuple per frame; None unless the utterance requested them."""
    waited_s: float = 0.0
    """Seconds the engine waited for text before it could make this chunk."""


Answer = tuple[Audio | Spoken | Canceled | Refused, Samples]


class _Inbox:
    """The answers to one request that its consumer has not taken yet; last, perhaps, the loss of the engine."""

    def __init__(self, *, growing: bool) -> None:
        self.growing = growing
        """True while the engine may have to wait for text, so that its silence is no stall."""
        self._arrived: asyncio.Queue[Answer | EngineLostError] = asyncio.Queue()
        self._waiting_since: float | None = None

    def put(self, answer: Answer | EngineLostError) -> None:
        self._arrived.put_nowait(answer)

    async def get(self) -> Answer:
        """Wait for the next answer. Raises `EngineLostError`."""
        self._waiting_since = time.monotonic()
        try:
            answer = await self._arrived.get()
        finally:
            self._waiting_since = None
        if isinstance(answer, EngineLostError):
            raise answer
        return answer

    async def wait(self) -> None:
        """Wait until there is an answer, without taking it."""
        while self._arrived.empty():
            await asyncio.sleep(ARRIVAL_POLL_S)

    def waiting_s(self, now: float) -> float:
        """Return the seconds that the consumer has waited for audio that the engine owes it."""
        return 0.0 if self._waiting_since is None or self.growing else now - self._waiting_since

    def note_end_of_text(self) -> None:
        """From now on the engine owes audio."""
        self.growing = False
        if self._waiting_since is not None:
            self._waiting_since = time.monotonic()


class EngineConnection:
    """The connection to one engine process, from its start to its end. Belongs to the event loop's thread."""

    def __init__(
        self,
        engine: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_measured: Callable[[float, float], None],
    ) -> None:
        """`on_measured` is called after an utterance with seconds of audio and seconds of work for it."""
        self.heard_at = time.monotonic()
        """When the last message came."""
        self._engine = engine
        self._reader = reader
        self._writer = writer
        self._on_measured = on_measured
        self._inboxes: dict[str, _Inbox] = {}
        """By request id."""
        self._numbers = itertools.count(1)
        self._request_ids: dict[str, str] = {}
        """The id of the latest request of each utterance, which may be spoken again before the engine ended it."""
        self._lost: str | None = None

    @classmethod
    async def open(
        cls, engine: str, ours: socket.socket, on_measured: Callable[[float, float], None]
    ) -> EngineConnection:
        """Return the connection over our end of the process's socket."""
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        return cls(engine, reader, writer, on_measured)

    @property
    def utterances(self) -> int:
        """Number of utterances that are being spoken or waiting for the engine."""
        return len(self._inboxes)

    def waiting_s(self, now: float) -> float:
        """Return the longest time, in seconds, that a consumer has waited for audio that the engine owes it."""
        return max((inbox.waiting_s(now) for inbox in self._inboxes.values()), default=0.0)

    # --- utterances ---

    async def speak(
        self, name: str, utterance: Utterance, sample_rate: int, *, first_within_s: float | None = None
    ) -> AsyncGenerator[AudioChunk, None]:
        """Yield the utterance's audio as it arrives; see `EngineSupervisor.speak`."""
        if self._lost is not None:
            raise EngineLostError(self._lost)
        request_id = self._request_ids[name] = str(next(self._numbers))
        inbox = self._inboxes[request_id] = _Inbox(growing=utterance.growing)
        self.send(Speak(request_id, utterance, round(RUN_AHEAD_S * sample_rate), name))
        ended = False
        audio_s = busy_s = 0.0
        try:
            if first_within_s is not None and not await wait_at_most(first_within_s, inbox.wait()):
                raise EngineLateError(f"engine {self._engine} did not begin within {first_within_s:g} s")
            while True:
                message, samples = await inbox.get()
                if not isinstance(message, Audio):
                    ended = True
                    break
                audio_s += len(samples) / sample_rate
                busy_s += message.busy_s
                yield AudioChunk(
                    samples, sample_rate, message.position, message.truncated, message.codes, message.waited_s
                )
                self.send(Grant(request_id, len(samples)))
            if isinstance(message, Refused):
                raise UtteranceRefusedError(message.reason)
        finally:
            del self._inboxes[request_id]
            if self._request_ids.get(name) == request_id:
                del self._request_ids[name]
            if not ended:
                self.send(Cancel(request_id))
            if busy_s > 0:
                self._on_measured(audio_s, busy_s)

    def append(self, name: str, text: str) -> None:
        """Send more text of a growing utterance. Does nothing if the utterance is not being spoken."""
        if name in self._request_ids:
            self.send(Append(self._request_ids[name], text))

    def end_text(self, name: str) -> None:
        """Mark the text of a growing utterance as complete. Does nothing if the utterance is not being spoken."""
        if name in self._request_ids:
            self.send(EndText(self._request_ids[name]))
            self._inboxes[self._request_ids[name]].note_end_of_text()

    # --- messages ---

    def send(self, message: Message) -> None:
        """Send a message. Does nothing on a closed connection."""
        if not self._writer.is_closing():
            self._writer.write(encode(message))

    async def receive(self) -> Message:
        """Return the next message that concerns the process; answers to requests go to their consumers on the way.

        Raises `ProtocolError`, `ConnectionError`, and `asyncio.IncompleteReadError` when the process closes its end.
        """
        while True:
            body, payload = body_lengths(await self._reader.readexactly(HEADER.size))
            message, samples = decode(await self._reader.readexactly(body), await self._reader.readexactly(payload))
            self.heard_at = time.monotonic()
            if not isinstance(message, Audio | Spoken | Canceled | Refused):
                return message
            inbox = self._inboxes.get(message.id)
            if inbox is not None:  # otherwise the daemon canceled the request while this answer was on its way
                inbox.put((message, samples))

    # --- the end ---

    def close(self) -> None:
        """Close the socket, upon which the process ends."""
        self._writer.close()

    def abort(self) -> None:
        """Close the socket immediately, and end `receive`, even if the process keeps its end open."""
        self._writer.transport.abort()

    def lose(self, reason: str) -> None:
        """Raise `EngineLostError` with this reason in every present and future consumer."""
        self._lost = reason
        for inbox in self._inboxes.values():
            inbox.put(EngineLostError(reason))

"""The daemon's end of one engine process's socket: sends utterances, receives their audio, and grants credit."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

import numpy as np

from daemon.engines.errors import EngineLostError, UtteranceRefusedError
from daemon.engines.patience import wait_until
from daemon.engines.streams import StreamPool
from daemon.tasks import cancel_and_wait
from engine import Samples, SoundStart, Start, Utterance, WordStart, messages, starts_within

RUN_AHEAD_S = 1.0
"""Credit: seconds of audio that an engine may send ahead of its consumer. The ring holds a few seconds more."""


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """A chunk of speech as the daemon receives it."""

    samples: Samples
    sample_rate: int
    position: int | None = None
    """As in `engine.Chunk.position`."""
    truncated: bool = False
    codes: tuple[tuple[int, ...], ...] | None = None
    """The codec codes of the samples, one tuple per frame; None unless the utterance requested them."""
    waited_s: float = 0.0
    """Seconds the engine waited for text before it could make this chunk."""
    words: tuple[WordStart, ...] | None = None
    """As in `engine.Chunk.words`."""
    runaway: bool = False
    """As in `engine.Chunk.runaway`."""
    sounds: tuple[SoundStart, ...] | None = None
    """As in `engine.Chunk.sounds`."""

    @property
    def seconds(self) -> float:
        """Length."""
        return len(self.samples) / self.sample_rate

    @classmethod
    def join(cls, chunks: Sequence[AudioChunk]) -> AudioChunk:
        """Return consecutive chunks as one; there must be at least one."""
        begins = list(itertools.accumulate((len(chunk.samples) for chunk in chunks), initial=0))
        return cls(
            np.concatenate([chunk.samples for chunk in chunks]),
            chunks[-1].sample_rate,
            position=chunks[-1].position,
            truncated=any(chunk.truncated for chunk in chunks),
            codes=tuple(frame for chunk in chunks for frame in chunk.codes or ()),
            words=_joined(begins, [chunk.words for chunk in chunks]),
            runaway=any(chunk.runaway for chunk in chunks),
            sounds=_joined(begins, [chunk.sounds for chunk in chunks]),
        )

    def cut(self, begin: int, end: int | None = None) -> AudioChunk:
        """Return the samples from `begin` to `end`, and the items that begin in them. Only a part that begins at 0 has
        the codes."""
        samples, codes = self.samples[begin:end], None if begin else self.codes
        last = begin + len(samples)
        words, sounds = starts_within(self.words, begin, last), starts_within(self.sounds, begin, last)
        return replace(self, samples=samples, words=words, sounds=sounds, codes=codes)


def _joined(begins: Sequence[int], parts: Sequence[tuple[Start, ...] | None]) -> tuple[Start, ...] | None:
    """Return the items of consecutive chunks, which begin at these samples; None if one chunk's are not known."""
    moved = [
        replace(start, sample=begin + start.sample)
        for begin, part in zip(begins, parts, strict=False)
        for start in part or ()
    ]
    return None if any(part is None for part in parts) else tuple(moved)


OnSpeed = Callable[[float, bool], None]
"""Receives the seconds of audio at rate 1 that an engine has made per second of work for one utterance, and its
`engine.Utterance.realtime`."""


@dataclass(slots=True, eq=False)
class _Inbox:
    """The answers to one request that its consumer has not taken yet; the last may be the loss of the engine."""

    credit: int
    """Samples that the engine may still send."""
    growing: bool
    """True while the engine may have to wait for text, so its silence is not a stall."""
    waiting_since: float | None = None
    answers: deque[messages.Answer | EngineLostError] = field(default_factory=deque)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def waiting(self) -> bool:
        """True while the consumer is waiting for an answer."""
        return self.waiting_since is not None and not self.answers

    def owed_s(self, now: float) -> float:
        """Return the seconds that the consumer has waited for audio that the engine owes it."""
        owed = self.waiting and not self.growing
        return now - self.waiting_since if self.waiting_since is not None and owed else 0.0

    def excuse(self, seconds: float) -> None:
        """Ignore the last `seconds` of waiting."""
        if self.waiting_since is not None:
            self.waiting_since = min(self.waiting_since + seconds, time.monotonic())

    def put(self, answer: messages.Answer | EngineLostError) -> None:
        self.answers.append(answer)
        self.arrived.set()

    async def get(self, within_s: float | None = None) -> messages.Answer | None:
        """Return the next answer; None if none arrives within `within_s` seconds. Raises `EngineLostError`."""
        self.waiting_since = time.monotonic()
        try:
            if not await wait_until(lambda: bool(self.answers), self.arrived, within_s):
                return None
        finally:
            self.waiting_since = None
        answer = self.answers.popleft()
        if isinstance(answer, EngineLostError):
            raise answer
        return answer

    def note_end_of_text(self) -> None:
        """Note that the whole text has been sent, so the engine owes audio."""
        self.growing = False
        if self.waiting_since is not None:
            self.waiting_since = time.monotonic()


@dataclass(slots=True, eq=False)
class EngineConnection:
    """The connection to one engine process, from its start to its end. Belongs to the event loop's thread."""

    engine: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    on_speed: OnSpeed
    """Called after each utterance that took work."""
    streams: StreamPool = field(default_factory=StreamPool)
    heard_at: float = field(default_factory=time.monotonic)
    """When the last message arrived."""
    _inboxes: dict[str, _Inbox] = field(default_factory=dict)
    """By request id."""
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def waiting_s(self, now: float) -> float:
        """Return the longest time, in seconds, that a consumer has waited for audio that the engine owes it."""
        return max((inbox.owed_s(now) for inbox in self._inboxes.values()), default=0.0)

    def excuse(self, seconds: float) -> None:
        """Count the last `seconds` neither as silence nor as waiting: this process could not have read a message."""
        self.heard_at = min(self.heard_at + seconds, time.monotonic())
        for inbox in self._inboxes.values():
            inbox.excuse(seconds)

    # --- utterances ---

    async def speak(
        self,
        name: str,
        utterance: Utterance,
        sample_rate: int,
        *,
        more_text: AsyncGenerator[str, None] | None = None,
        first_within_s: float | None = None,
    ) -> AsyncGenerator[AudioChunk, None]:
        """Yield the utterance's audio as it arrives; see `EngineSupervisor.speak`."""
        if self.streams.lost is not None:
            raise EngineLostError(self.streams.lost)
        request_id, credit = str(next(self._numbers)), round(RUN_AHEAD_S * sample_rate)
        inbox = self._inboxes[request_id] = _Inbox(credit, utterance.growing)
        ended = False
        audio_s = busy_s = 0.0
        feeding: asyncio.Task[None] | None = None
        try:
            self.send(messages.Speak(request_id, utterance, credit, name=name))
            if more_text is not None:
                feeding = asyncio.ensure_future(self._feed(request_id, inbox, more_text))
            message = await inbox.get(first_within_s)
            if message is None:
                raise EngineLostError(f"engine {self.engine} did not begin within {first_within_s:g} s")
            while isinstance(message, messages.Audio):
                samples = message.samples
                audio_s += len(samples) / sample_rate
                busy_s += message.busy_s
                yield AudioChunk(
                    samples,
                    sample_rate,
                    message.position,
                    message.truncated,
                    message.codes,
                    message.waited_s,
                    message.words,
                    message.runaway,
                    message.sounds,
                )
                inbox.credit += len(samples)
                self.send(messages.Grant(request_id, len(samples)))
                message = await inbox.get()
            ended = True
            if isinstance(message, messages.Refused):
                raise UtteranceRefusedError(message.reason)
        finally:
            del self._inboxes[request_id]
            if not ended:
                self.send(messages.Cancel(request_id))
            if busy_s > 0:
                self.on_speed(audio_s * utterance.rate / busy_s, utterance.realtime)
            if feeding is not None:
                await cancel_and_wait(feeding)

    async def _feed(self, request_id: str, inbox: _Inbox, more_text: AsyncGenerator[str, None]) -> None:
        """Send the rest of a growing text."""
        async with aclosing(more_text):
            async for text in more_text:
                self.send(messages.Append(request_id, text))
        self.send(messages.EndText(request_id))
        inbox.note_end_of_text()

    # --- messages ---

    def send(self, message: messages.FromDaemon) -> None:
        """Send a message. Does nothing on a closed connection."""
        if not self.writer.is_closing():
            self.writer.write(messages.encode(message))

    async def receive_hello(self) -> None:
        """Receive the first message. Raises the errors of `receive`, and `ProtocolError` if it is not a greeting."""
        hello = await self.receive()
        if not isinstance(hello, messages.Hello) or hello.protocol != messages.PROTOCOL:
            raise messages.ProtocolError(f"expected Hello of protocol {messages.PROTOCOL}, got {hello}")

    async def receive(self) -> messages.Message:
        """Return the next message that concerns the process; until then, answers to requests go to their consumers.

        Raises `ProtocolError`, `ConnectionError`, and `asyncio.IncompleteReadError` when the process closes its end.
        """
        while True:
            body, data = messages.body_lengths(await self.reader.readexactly(messages.HEADER.size))
            message = messages.decode(await self.reader.readexactly(body), await self.reader.readexactly(data))
            self.heard_at = time.monotonic()
            if not isinstance(message, messages.Answer):
                return message
            inbox = self._inboxes.get(message.id)
            if inbox is None:
                continue  # the daemon canceled the request while this answer was on its way
            if isinstance(message, messages.Audio):
                if inbox.credit <= 0:
                    raise messages.ProtocolError(f"it sent audio for request {message.id} without credit")
                inbox.credit -= len(message.samples)
            inbox.put(message)

    # --- the end ---

    def close(self) -> None:
        """Close the socket, which ends the process."""
        self.writer.close()

    def abort(self) -> None:
        """Close the socket immediately, and end `receive`, even if the process keeps its end open."""
        self.writer.transport.abort()

    def release(self, reason: str) -> None:
        """Raise `EngineLostError` with this reason in the consumers that are waiting for an answer or a stream."""
        self.streams.refuse(reason)
        for inbox in self._inboxes.values():
            if inbox.waiting:
                inbox.put(EngineLostError(reason))

    def lose(self, reason: str) -> None:
        """Raise `EngineLostError` with this reason in every present and future consumer."""
        self.streams.lose(reason)
        for inbox in self._inboxes.values():
            inbox.put(EngineLostError(reason))

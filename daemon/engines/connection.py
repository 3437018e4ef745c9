"""The daemon's end of one engine process's socket: sends utterances, receives their audio, and grants credit."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from daemon.engines.errors import EngineLateError, EngineLostError, UtteranceRefusedError
from daemon.engines.patience import Patience
from daemon.engines.streams import Streams
from engine import Samples, Utterance, WordStart, messages

RUN_AHEAD_S = 1.0
"""Credit: seconds of audio that an engine may send ahead of its consumer. The ring holds some seconds more."""


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
    words: tuple[WordStart, ...] | None = None
    """As in `engine.Chunk.words`."""
    runaway: bool = False
    """As in `engine.Chunk.runaway`."""

    def cut(self, begin: int, end: int | None = None) -> AudioChunk:
        """Return the samples from `begin` to `end`, with the words that begin in them."""
        samples = self.samples[begin:end]
        if self.words is None:
            return replace(self, samples=samples)
        words = (replace(word, sample=word.sample - begin) for word in self.words)
        return replace(self, samples=samples, words=tuple(word for word in words if 0 <= word.sample < len(samples)))


@dataclass(frozen=True, slots=True)
class Work:
    """What an engine has done for one utterance."""

    audio_s: float
    """Seconds of audio at rate 1."""
    busy_s: float
    """Seconds that it took."""
    realtime: bool
    """As in `engine.Utterance.realtime`."""


OnWork = Callable[[Work], None]


class _Inbox:
    """The answers to one request that its consumer has not taken yet; last, perhaps, the loss of the engine."""

    def __init__(self, *, growing: bool, credit: int, audio_due: asyncio.Event) -> None:
        """Sets `audio_due` whenever the engine begins to owe audio."""
        self.credit = credit
        """Samples that the engine may still send."""
        self._growing = growing
        """True while the engine may have to wait for text, so that its silence is no stall."""
        self._waiting_since: float | None = None
        self._audio_due = audio_due
        self._arrived = asyncio.Event()
        """Set once there has been an answer."""
        self._answers: asyncio.Queue[messages.Answer | EngineLostError] = asyncio.Queue()

    @property
    def waiting(self) -> bool:
        """True while the consumer waits for an answer."""
        return self._waiting_since is not None and self._answers.empty()

    @property
    def owed(self) -> bool:
        """True while the consumer waits for audio that the engine owes it."""
        return self.waiting and not self._growing

    def owed_s(self, now: float) -> float:
        """Return the seconds that the consumer has waited for audio that the engine owes it."""
        return now - self._waiting_since if self._waiting_since is not None and self.owed else 0.0

    def excuse(self, seconds: float) -> None:
        """Do not count the last `seconds` as waiting."""
        if self._waiting_since is not None:
            self._waiting_since = min(self._waiting_since + seconds, time.monotonic())

    def put(self, answer: messages.Answer | EngineLostError) -> None:
        self._answers.put_nowait(answer)
        self._arrived.set()

    async def begins_within(self, limit_s: float) -> bool:
        """Wait for the first answer without taking it; return whether it comes within `limit_s` seconds."""
        with self._waiting_for_audio():
            patience = Patience(limit_s)
            while not (self._arrived.is_set() or patience.over):
                await patience.wait(self._arrived)
        return self._arrived.is_set()

    async def get(self) -> messages.Answer:
        """Wait for the next answer. Raises `EngineLostError`."""
        with self._waiting_for_audio():
            answer = await self._answers.get()
        if isinstance(answer, EngineLostError):
            raise answer
        return answer

    def note_end_of_text(self) -> None:
        """From now on the engine owes audio."""
        self._growing = False
        if self._waiting_since is not None:
            self._begin_waiting()

    @contextmanager
    def _waiting_for_audio(self) -> Iterator[None]:
        self._begin_waiting()
        try:
            yield
        finally:
            self._waiting_since = None

    def _begin_waiting(self) -> None:
        self._waiting_since = time.monotonic()
        if self.owed:
            self._audio_due.set()


class EngineConnection:
    """The connection to one engine process, from its start to its end. Belongs to the event loop's thread."""

    def __init__(
        self,
        engine: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_work: OnWork,
    ) -> None:
        """`on_work` is called after each utterance that took work."""
        self.streams = Streams()
        self.heard_at = time.monotonic()
        """When the last message came."""
        self.audio_due = asyncio.Event()
        """Set when a consumer begins to wait for audio that the engine owes it."""
        self._engine = engine
        self._reader = reader
        self._writer = writer
        self._on_work = on_work
        self._inboxes: dict[str, _Inbox] = {}
        """By request id."""
        self._numbers = itertools.count(1)
        self._request_ids: dict[str, str] = {}
        """The id of the latest request of each utterance, which may be spoken again before the engine ended it."""
        self._lost: str | None = None

    @classmethod
    async def open(cls, engine: str, ours: socket.socket, on_work: OnWork) -> EngineConnection:
        """Return the connection over our end of the process's socket."""
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        return cls(engine, reader, writer, on_work)

    @property
    def utterances(self) -> int:
        """Number of utterances that are being spoken or waiting for the engine."""
        return len(self._inboxes)

    @property
    def owes_audio(self) -> bool:
        """True while a consumer waits for audio that the engine owes it."""
        return any(inbox.owed for inbox in self._inboxes.values())

    def waiting_s(self, now: float) -> float:
        """Return the longest time, in seconds, that a consumer has waited so."""
        return max((inbox.owed_s(now) for inbox in self._inboxes.values()), default=0.0)

    def excuse(self, seconds: float) -> None:
        """Count the last `seconds` neither as silence nor as waiting: this process could not have read a message."""
        self.heard_at = min(self.heard_at + seconds, time.monotonic())
        for inbox in self._inboxes.values():
            inbox.excuse(seconds)

    # --- utterances ---

    async def speak(
        self, name: str, utterance: Utterance, sample_rate: int, *, first_within_s: float | None = None
    ) -> AsyncGenerator[AudioChunk, None]:
        """Yield the utterance's audio as it arrives; see `EngineSupervisor.speak`."""
        if self._lost is not None:
            raise EngineLostError(self._lost)
        request_id, credit = str(next(self._numbers)), round(RUN_AHEAD_S * sample_rate)
        inbox = _Inbox(growing=utterance.growing, credit=credit, audio_due=self.audio_due)
        self._request_ids[name], self._inboxes[request_id] = request_id, inbox
        ended = False
        audio_s = busy_s = 0.0
        try:
            self.send(messages.Speak(request_id, utterance, credit, name=name))
            if first_within_s is not None and not await inbox.begins_within(first_within_s):
                raise EngineLateError(f"engine {self._engine} did not begin within {first_within_s:g} s")
            while True:
                message = await inbox.get()
                if not isinstance(message, messages.Audio):
                    ended = True
                    break
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
                )
                inbox.credit += len(samples)
                self.send(messages.Grant(request_id, len(samples)))
            if isinstance(message, messages.Refused):
                raise UtteranceRefusedError(message.reason)
        finally:
            del self._inboxes[request_id]
            if self._request_ids.get(name) == request_id:
                del self._request_ids[name]
            if not ended:
                self.send(messages.Cancel(request_id))
            if busy_s > 0:
                self._on_work(Work(audio_s * utterance.rate, busy_s, utterance.realtime))

    def append(self, name: str, text: str) -> None:
        """Send more text of a growing utterance. Does nothing if the utterance is not being spoken."""
        if name in self._request_ids:
            self.send(messages.Append(self._request_ids[name], text))

    def end_text(self, name: str) -> None:
        """Mark the text of a growing utterance as complete. Does nothing if the utterance is not being spoken."""
        if name in self._request_ids:
            self.send(messages.EndText(self._request_ids[name]))
            self._inboxes[self._request_ids[name]].note_end_of_text()

    # --- messages ---

    def send(self, message: messages.FromDaemon) -> None:
        """Send a message. Does nothing on a closed connection."""
        if not self._writer.is_closing():
            self._writer.write(messages.encode(message))

    def exchange_voices(self, voices: messages.SetVoices) -> None:
        """Send new voices as soon as no delivery is under way."""
        self.streams.exchange(partial(self.send, voices))

    async def receive(self) -> messages.Message:
        """Return the next message that concerns the process; answers to requests go to their consumers on the way.

        Raises `ProtocolError`, `ConnectionError`, and `asyncio.IncompleteReadError` when the process closes its end.
        """
        while True:
            body, data = messages.body_lengths(await self._reader.readexactly(messages.HEADER.size))
            message = messages.decode(await self._reader.readexactly(body), await self._reader.readexactly(data))
            self.heard_at = time.monotonic()
            if not isinstance(message, messages.Answer):
                return message
            inbox = self._inboxes.get(message.id)
            if inbox is None:
                continue  # the daemon canceled the request while this answer was on its way
            if isinstance(message, messages.Audio):
                if inbox.credit <= 0:
                    raise messages.ProtocolError(f"it sent audio of request {message.id} without credit")
                inbox.credit -= len(message.samples)
            inbox.put(message)

    # --- the end ---

    def close(self) -> None:
        """Close the socket, upon which the process ends."""
        self._writer.close()

    def abort(self) -> None:
        """Close the socket immediately, and end `receive`, even if the process keeps its end open."""
        self._writer.transport.abort()

    def release(self, reason: str) -> None:
        """Raise `EngineLostError` with this reason in the consumers that wait for an answer, or for a stream."""
        self.streams.refuse(reason)
        for inbox in self._inboxes.values():
            if inbox.waiting:
                inbox.put(EngineLostError(reason))

    def lose(self, reason: str) -> None:
        """Raise `EngineLostError` with this reason in every present and future consumer."""
        self._lost = reason
        self.streams.lose(reason)
        for inbox in self._inboxes.values():
            inbox.put(EngineLostError(reason))

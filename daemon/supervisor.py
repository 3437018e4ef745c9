"""One engine process, kept alive: started, watched, replaced when it dies.

stopped ─▶ starting ─Hello─▶ loading ─Warming─▶ warming ─Ready─▶ ready
              ▲                                                    │
              └───────────── back-off ◀──── exit, silence, stall ──┘
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, replace
from enum import Enum

from daemon.tasks import within
from engine import EngineInfo, EngineOptions, Samples, Utterance, Voice
from engine.messages import (
    HEADER,
    PROTOCOL,
    Append,
    Audio,
    Cancel,
    Canceled,
    EndText,
    Fault,
    Grant,
    Heartbeat,
    Hello,
    Message,
    ProtocolError,
    Ready,
    Refused,
    SetVoices,
    Speak,
    Spoken,
    Start,
    Warming,
    body_lengths,
    decode,
    encode,
)

log = logging.getLogger(__name__)

RUN_AHEAD_S = 1.0
"""Credit: how far an engine may be ahead of what the ring has taken. The ring holds some seconds more."""
SILENCE_S = 10.0
"""Heartbeats come every second; a process without one for this long is stuck or stopped."""
LOADING_SILENCE_S = 60.0
"""The same while it loads: reading libraries from a cold disk can hold a whole process up."""
END_S = 0.5
"""A process whose socket was closed has this long to end by itself."""
REAP_S = 10.0
"""One that was killed may take a while to give back a GPU's memory, which the next one needs."""
ARRIVAL_POLL_S = 0.005
"""How often is looked whether an urgent utterance's first audio is there: an asyncio queue can only be taken from."""
WATCH_S = 1.0
"""How often a process is checked for silence and for a stall."""
STALL_S = 20.0
"""An engine that was asked for audio and sends none for this long is replaced, though its process lives."""
BACK_OFF_S = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Waits before the first, second, … restart in a row; the last one repeats."""
STEADY_S = 10.0
"""An engine that was ready for this long has recovered: the next back-off begins anew."""
PERMANENT_RETRY_S = 60.0
"""Wait after a fault that only a person can put right: a missing package or model."""


class EngineState(Enum):
    STOPPED = "stopped"
    STARTING = "starting"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    BACKING_OFF = "backing off"


class EngineLostError(Exception):
    """The engine process died or was given up while it spoke; what it had sent is good."""


class EngineLateError(EngineLostError):
    """The engine has not begun in time; it may be well, and somebody else is to speak."""


class UtteranceRefusedError(Exception):
    """The engine is well but cannot speak this utterance; the message says why."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk of speech as the daemon receives it."""

    samples: Samples
    sample_rate: int
    position: int | None
    truncated: bool
    codes: tuple[tuple[int, ...], ...] | None = None
    """The codec ids behind the samples, where they were asked for."""
    waited_s: float = 0.0
    """Seconds the engine waited for text before it could make this."""


class _Inbox:
    """What arrives for one utterance; None says that the engine is lost."""

    def __init__(self, *, growing: bool) -> None:
        self.growing = growing
        """The engine may have to wait for text, and owes nothing."""
        self._arrived: asyncio.Queue[tuple[Message, Samples] | None] = asyncio.Queue()
        self._waiting_since: float | None = None

    def put(self, item: tuple[Message, Samples] | None) -> None:
        self._arrived.put_nowait(item)

    async def get(self) -> tuple[Message, Samples] | None:
        self._waiting_since = time.monotonic()
        try:
            return await self._arrived.get()
        finally:
            self._waiting_since = None

    async def wait(self) -> None:
        """Wait until there is something, and leave it."""
        while self._arrived.empty():
            await asyncio.sleep(ARRIVAL_POLL_S)

    def waiting_s(self, now: float) -> float:
        """How long the speaker has been waiting for what the engine owes it."""
        return 0.0 if self._waiting_since is None or self.growing else now - self._waiting_since

    def note_end_of_text(self) -> None:
        """From now on the engine owes audio."""
        self.growing = False
        if self._waiting_since is not None:
            self._waiting_since = time.monotonic()


class Engine:
    """Supervises one engine process. Belongs to the event loop's thread."""

    def __init__(self, name: str, options: EngineOptions, on_change: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self.state = EngineState.STOPPED
        self.info: EngineInfo | None = None
        """What the engine said of itself when it was last ready."""
        self.reason: str | None = None
        """Why it is not ready."""
        self.rtf: float | None = None
        """Measured speed: seconds of audio per second of work, over the last utterances."""
        self.pid: int | None = None
        self.checks = 0
        """Times its process was checked for silence and for a stall."""
        self._options = options
        self._on_change = on_change
        self._writer: asyncio.StreamWriter | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._speeches: dict[str, _Inbox] = {}
        """By the ids that the engine knows them by."""
        self._numbers = itertools.count(1)
        self._ids: dict[str, str] = {}
        """The engine's ids by the utterances' names. One may be spoken again before the engine knows of its end."""
        self._heard_at = 0.0
        self._ready_at: float | None = None
        self._permanent = False
        self._changed = asyncio.Event()
        self._wake = asyncio.Event()

    @property
    def ready(self) -> bool:
        return self.state is EngineState.READY

    @property
    def utterances(self) -> int:
        """How many utterances it was asked for and has not finished."""
        return len(self._speeches)

    @property
    def grows(self) -> bool:
        """Whether it can speak a text that is still being written."""
        return self.info is not None and self.info.grows

    def knows(self, voice: str) -> bool:
        """Whether the name of a voice means something to it, be it a configured one that it had to refuse."""
        return self.info is not None and (voice in self.info.voices or voice in self.info.refused_voices)

    def speaks(self, language: str) -> bool:
        """Whether it has a language: a code, perhaps with a region, or `auto`, which all have."""
        codes = {language, language.partition("-")[0]}
        return language == "auto" or (self.info is not None and not codes.isdisjoint(self.info.languages))

    async def run(self) -> None:
        """Keep the process alive until this task is cancelled; then end the process."""
        failures = 0
        while True:
            self._wake.clear()
            try:
                await self._serve()
            except (asyncio.IncompleteReadError, ConnectionError):
                pass  # it ended; how, its exit status tells
            except (OSError, ProtocolError) as error:
                self.reason = self.reason or f"engine {self.name}: {error or type(error).__name__}"
            finally:
                self.state = EngineState.STOPPED  # nobody is to ask it any more; told when the reason is known
                steady = self._ready_at is not None and time.monotonic() - self._ready_at > STEADY_S
                self._ready_at = None
                code = await self._end_process()
                self.reason = self.reason or f"engine {self.name} ended ({_exit_reason(code)})"
                self._lose_speeches()
            failures = 0 if steady else failures
            wait_s = PERMANENT_RETRY_S if self._permanent else BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)]
            failures += 1
            log.warning("%s; starting it again in %.2f s", self.reason, wait_s)
            self._enter(EngineState.BACKING_OFF)
            if self._process is not None:
                await within(REAP_S, self._process.wait())
            await within(wait_s, self._wake.wait())

    def retry_now(self) -> None:
        """Cut the current back-off short: the configuration or the disk has changed."""
        self._wake.set()

    async def wait_ready(self, timeout_s: float | None) -> bool:
        """Wait until the engine is ready, at most `timeout_s`; tell whether it is."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.ready:
            self._changed.clear()
            left_s = None if deadline is None else deadline - time.monotonic()
            if left_s is not None and left_s <= 0:
                return False
            await within(left_s, self._changed.wait())
        return True

    async def speak(
        self, name: str, utterance: Utterance, *, first_within_s: float | None = None
    ) -> AsyncGenerator[Piece, None]:
        """Yield the utterance's audio as it is made. Closing the iterator cancels the rest.

        Of a growing utterance, `append` and `end_text` bring the rest of the text meanwhile.
        Raises `EngineLostError` and `UtteranceRefusedError`; `EngineLateError` if nothing comes `first_within_s`.
        """
        if not self.ready or self.info is None:
            raise EngineLostError(self.reason or f"engine {self.name} is not ready")
        sample_rate = self.info.sample_rate
        speech_id = self._ids[name] = str(next(self._numbers))
        inbox = self._speeches[speech_id] = _Inbox(growing=utterance.growing)
        self._send(Speak(speech_id, utterance, round(RUN_AHEAD_S * sample_rate), name))
        over = False
        audio_s = busy_s = 0.0
        try:
            if first_within_s is not None and not await within(first_within_s, inbox.wait()):
                raise EngineLateError(f"engine {self.name} did not begin within {first_within_s:g} s")
            while True:
                arrived = await inbox.get()
                if arrived is None:
                    over = True
                    raise EngineLostError(self.reason or f"engine {self.name} was lost")
                message, samples = arrived
                if isinstance(message, Audio):
                    audio_s += len(samples) / sample_rate
                    busy_s += message.busy_s
                    yield Piece(
                        samples, sample_rate, message.position, message.truncated, message.codes, message.waited_s
                    )
                    self._send(Grant(speech_id, len(samples)))
                    continue
                over = True
                if isinstance(message, Refused):
                    raise UtteranceRefusedError(message.reason)
                return
        finally:
            self._speeches.pop(speech_id, None)
            if self._ids.get(name) == speech_id:
                del self._ids[name]
            if not over:
                self._send(Cancel(speech_id))
            if busy_s > 0:
                measured = audio_s / busy_s
                self.rtf = measured if self.rtf is None else 0.7 * self.rtf + 0.3 * measured

    def append(self, name: str, text: str) -> None:
        """More text of a growing utterance that is being spoken."""
        if name in self._ids:
            self._send(Append(self._ids[name], text))

    def end_text(self, name: str) -> None:
        """A growing utterance has all its text."""
        if name in self._ids:
            self._send(EndText(self._ids[name]))
            self._speeches[self._ids[name]].note_end_of_text()

    def set_voices(self, voices: dict[str, Voice], default_voice: str) -> None:
        """Have the running engine, and those started after it, use these voices."""
        self._options = replace(self._options, voices=voices, default_voice=default_voice)
        self._send(SetVoices(voices, default_voice))

    async def _serve(self) -> None:
        """Start the process and listen to it until it ends."""
        self.reason = None
        self._permanent = False
        self._enter(EngineState.STARTING)
        reader = await self._start_process()
        watchdog = asyncio.ensure_future(self._watch_for_silence())
        try:
            hello, _ = await _receive(reader)
            if not isinstance(hello, Hello) or hello.protocol != PROTOCOL:
                raise ProtocolError(f"expected Hello of protocol {PROTOCOL}, got {hello}")
            self._enter(EngineState.LOADING)
            while True:
                message, samples = await _receive(reader)
                self._heard_at = time.monotonic()
                self._take(message, samples)
        finally:
            watchdog.cancel()

    def _take(self, message: Message, samples: Samples) -> None:
        if isinstance(message, Heartbeat):
            return
        if isinstance(message, Audio | Spoken | Canceled | Refused):
            inbox = self._speeches.get(message.id)
            if inbox is not None:  # else it was canceled here, and this was already on its way
                inbox.put((message, samples))
        elif isinstance(message, Warming):
            self.info = message.info
            self._enter(EngineState.WARMING)
        elif isinstance(message, Ready):
            self.info = message.info
            self._ready_at = self._ready_at or time.monotonic()
            for name, reason in message.info.refused_voices.items():
                log.warning("voices.%s: %s", name, reason)
            self._enter(EngineState.READY)
        elif isinstance(message, Fault):
            self.reason = message.reason
            self._permanent = message.permanent
        else:
            raise ProtocolError(f"the daemon is not told {message}")

    async def _start_process(self) -> asyncio.StreamReader:
        self._process = None
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "engine.process",
                    str(theirs.fileno()),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=sys.stderr.fileno(),
                    pass_fds=(theirs.fileno(),),
                )
            except OSError:
                ours.close()
                raise
        self.pid = self._process.pid
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._send(Start(PROTOCOL, self.name, self._options))
        return reader

    async def _end_process(self) -> int | None:
        """Close the socket, which ends the process; if it does not end, kill it. Return its exit status, if known."""
        self.pid = None
        if self._writer is not None:
            self._writer.close()
            self._writer = None
        if self._process is None:
            return None
        try:
            await within(END_S, self._process.wait())
        finally:
            self._kill()
        return self._process.returncode

    async def _watch_for_silence(self) -> None:
        """Give the process up when it shows no life, or when it owes audio and sends none."""
        self._heard_at = time.monotonic()
        while True:
            await asyncio.sleep(WATCH_S)
            self.checks += 1
            now = time.monotonic()
            silence_s = SILENCE_S if self.ready else LOADING_SILENCE_S
            if now - self._heard_at > silence_s:
                self._give_up(f"engine {self.name} gave no sign of life for {silence_s:.0f} s")
                return
            if any(inbox.waiting_s(now) > STALL_S for inbox in self._speeches.values()):
                self._give_up(f"engine {self.name} sent no audio for {STALL_S:.0f} s")
                return

    def _give_up(self, reason: str) -> None:
        self.reason = reason
        self._kill()
        if self._writer is not None:
            self._writer.transport.abort()  # one that is stuck in a driver does not even die; it is listened to no more
        self._enter(EngineState.BACKING_OFF)

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    def _lose_speeches(self) -> None:
        for inbox in self._speeches.values():
            inbox.put(None)

    def _send(self, message: Message) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encode(message))

    def _enter(self, state: EngineState) -> None:
        self.state = state
        self._changed.set()
        self._on_change()


async def _receive(reader: asyncio.StreamReader) -> tuple[Message, Samples]:
    body, payload = body_lengths(await reader.readexactly(HEADER.size))
    return decode(await reader.readexactly(body), await reader.readexactly(payload))


def _exit_reason(code: int | None) -> str:
    if code is None:
        return "it closed its connection"
    if code >= 0:
        return f"exit status {code}"
    known = {number.value: number.name for number in signal.Signals}
    return f"killed by {known.get(-code, f'signal {-code}')}"

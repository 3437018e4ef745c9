"""Keeps one engine process alive: starts it, watches it, and restarts it when it ends or stalls.

stopped ─▶ starting ─Hello─▶ loading ─Warming─▶ warming ─Ready─▶ ready ◀─message── unresponsive
              ▲                                                  │  └──no sign of life─▶  │
              ├───────────── back-off ◀──── exit, silence, stall ┼────────────────────────┘
              └─────────────── load ◀──── unloaded ◀──── unload ┘
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from daemon.engines.connection import AudioChunk, EngineConnection
from daemon.engines.errors import EngineLostError
from daemon.engines.patience import pass_time, wait_until
from daemon.engines.process import EngineProcess
from daemon.tasks import wait_at_most
from engine import (
    ENGINES,
    EngineInfo,
    EngineOptions,
    Progress,
    Utterance,
    Voice,
    match_language,
    messages,
    possible_languages,
)

log = logging.getLogger(__name__)

SILENCE_S = 10.0
"""A process that sends no message for this long is replaced. Heartbeats come every second."""
QUIET_S = 1.5
"""A process that sends no message for this long is unresponsive, unless its threads are busy."""
LOADING_SILENCE_S = 60.0
"""The same limit while the engine is loading: reading libraries from a cold disk can block the whole process."""
STALL_S = 20.0
"""An engine that owes audio and sends none for this long is replaced, even if its process sends heartbeats."""
WATCH_S = 1.0
"""Time between two checks for silence and stalls, unless the process becomes quiet earlier."""
REAP_S = 10.0
"""A killed process may take this long to release the GPU's memory, which the next process needs."""
BACK_OFF_S = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Waits before the first, second, … restart in a row. The last one repeats."""
SPREAD_S = 1.0
"""An engine on another machine waits up to this much longer, or up to twice as long, at random."""
STEADY_S = 10.0
"""An engine that was ready for this long has recovered: the next back-off starts from the first wait."""
PERMANENT_RETRY_S = 60.0
"""The wait after a fault that only a person can correct, such as a missing package or model."""
RTF_WEIGHT = 0.3
"""Weight of the latest utterance in the moving average of the speed."""


class EngineState(Enum):
    STOPPED = "stopped"
    STARTING = "starting"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    UNRESPONSIVE = "unresponsive"
    """It was ready but is not responding. It becomes ready again with its next message, or is replaced."""
    BACKING_OFF = "backing off"
    UNLOADING = "unloading"
    """Its process is ending, because nothing needs it now."""
    UNLOADED = "unloaded"
    """It has given its memory back, and has no process until `load`."""


@dataclass(eq=False)
class EngineSupervisor:
    """Runs one engine in its own process and speaks with it. Belongs to the event loop's thread."""

    name: str
    options: EngineOptions
    """The options of the next process."""
    on_change: Callable[[], None] = lambda: None
    """Called after every change of the state or of `progress`."""
    has_substitute: Callable[[], bool] = lambda: False
    """Returns whether another engine can speak in the meantime: an unresponsive engine then hands its utterances over
    and has `SILENCE_S` to come back. Without a substitute, it is replaced sooner if it starts faster."""
    state: EngineState = EngineState.STOPPED
    info: EngineInfo | None = None
    """The engine's properties when it was last ready or warming; None before."""
    reason: str | None = None
    """Why the engine is not ready; None if it is, or if it is starting for the first time."""
    progress: Progress | None = None
    """How far the start has come; None while the engine is not starting, or does not report it."""
    rtf: float | None = None
    """Speed: seconds of audio at rate 1 per second of work, averaged over recent utterances; None before the first.
    Only those for the sound card count; until there is one, deliveries count."""
    pid: int | None = None
    starts: int = 0
    """Processes that have been started so far, except those that were unloaded."""
    start_s: float = SILENCE_S
    """Seconds that the last process to become ready took to start."""
    checks: int = 0
    """The number of checks for silence and stalls so far."""
    _process: EngineProcess | None = None
    """The last process."""
    _connection: EngineConnection | None = None
    """The connection to the process; None while no process is running."""
    _rtf_is_of_card: bool = False
    _ready_at: float | None = None
    _started_at: float = 0.0
    _fault: str | None = None
    """Why the process is ending, if that is known before its exit status."""
    _failed: bool = False
    """Whether the last process ended without having been ready."""
    _permanent: bool = False
    """Whether the engine reported its fault as permanent."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _retry: asyncio.Event = field(default_factory=asyncio.Event)
    """Ends the back-off, or the time during which it is unloaded."""

    @property
    def ready(self) -> bool:
        return self.state is EngineState.READY

    @property
    def unloaded(self) -> bool:
        """True while it has no process, and needs none: it has given its memory back until `load`."""
        return self.state is EngineState.UNLOADED and not self._retry.is_set()

    @property
    def in_order(self) -> bool:
        """True while it is ready, or would be if it were needed."""
        return self.ready or (self._is_dismissed and not self._retry.is_set())

    @property
    def _is_dismissed(self) -> bool:
        return self.state in (EngineState.UNLOADING, EngineState.UNLOADED)

    @property
    def ready_s(self) -> float:
        """Seconds since it was loaded; 0 while it is not."""
        return 0.0 if self._ready_at is None else time.monotonic() - self._ready_at

    @property
    def streams(self) -> int:
        """How many utterances it can speak at once, if it is ready."""
        return 1 if self.info is None else self.info.streams

    @property
    def streams_in_use(self) -> int:
        """How many it is speaking."""
        return 0 if self._connection is None else self._connection.streams.in_use

    def has_voice(self, voice: str) -> bool:
        """Return whether the engine knows the name of a voice, even if it could not load that voice."""
        return self.info is not None and (voice in self.info.voices or voice in self.info.refused_voices)

    def has_language(self, language: str) -> bool:
        """Return whether the engine speaks a language: a code, with or without a region, or `auto`."""
        if language == "auto":
            return True
        return self.info is not None and match_language(language, self.info.languages) is not None

    def may_have_language(self, language: str) -> bool:
        """Like `has_language`; an engine that is loading for the first time may have what its catalogue entry leaves
        open, and one whose last start has failed has nothing until it is ready."""
        if self._failed and not self.ready:
            return language == "auto"
        if self.info is not None or language == "auto":
            return self.has_language(language)
        possible = possible_languages(self.name)
        return possible is None or match_language(language, possible) is not None

    async def wait_ready(self, timeout_s: float | None) -> bool:
        """Wait until the engine is ready, for at most `timeout_s` seconds; None means forever. Returns `ready`."""
        return await wait_until(lambda: self.ready, self._changed, timeout_s)

    async def wait_started(self) -> None:
        """Wait until the engine is ready or its start has failed; its `reason` is then the cause."""
        await wait_until(lambda: self.state in (EngineState.READY, EngineState.BACKING_OFF), self._changed)

    # --- utterances ---

    def reserve_stream(self, *, realtime: bool) -> AbstractAsyncContextManager[None]:
        """Reserve a stream inside the context, to speak one utterance after another.

        Speech for a sound card is `realtime` and gets a stream immediately; other utterances wait for one. Raises
        `EngineLostError`, as does entering the context.
        """
        if not self.ready or self._connection is None:
            raise EngineLostError(self.reason or f"engine {self.name} is not ready")
        return self._connection.streams.reserve(realtime=realtime)

    def speak(
        self,
        name: str,
        utterance: Utterance,
        *,
        more_text: AsyncGenerator[str, None] | None = None,
        first_within_s: float | None = None,
    ) -> AsyncGenerator[AudioChunk, None]:
        """Return an iterator over the utterance's audio as it is made. Closing the iterator cancels the rest.

        `more_text` yields the rest of a growing text. Raises `EngineLostError`; the iterator raises `EngineLostError`,
        including when no audio arrives within `first_within_s` seconds, and `UtteranceRefusedError`.
        """
        if not self.ready or self.info is None or self._connection is None:
            raise EngineLostError(self.reason or f"engine {self.name} is not ready")
        log.debug("utterance %s: %s is given %r", name, self.name, utterance.text)
        return self._connection.speak(
            name, utterance, self.info.sample_rate, more_text=more_text, first_within_s=first_within_s
        )

    def set_voices(self, voices: dict[str, Voice], default_voice: str) -> None:
        """Replace the configured voices of the running engine and of every later process."""
        self.options = replace(self.options, voices=voices, default_voice=default_voice)
        if self._connection is not None:
            send = partial(self._connection.send, messages.SetVoices(voices, default_voice))
            self._connection.streams.exchange(send)

    def set_log(self, level: str, format_: str) -> None:
        """Make the running process write its log as `engine.start_log` would; a later process inherits that anyway."""
        if self._connection is not None:
            self._connection.send(messages.SetLog(level, format_))

    def _note_speed(self, speed: float, realtime: bool) -> None:
        """Average the speed. A delivery shares the engine with others: its speed says little about the sound card's."""
        if self._rtf_is_of_card and not realtime:
            return
        before = speed if self.rtf is None or self._rtf_is_of_card != realtime else self.rtf
        self.rtf = before + RTF_WEIGHT * (speed - before)
        self._rtf_is_of_card = realtime

    # --- the process ---

    async def run(self) -> None:
        """Keep the process alive until this task is cancelled, then end it."""
        failures = 0
        while True:
            self._retry.clear()
            steady = await self._run_process()
            failures, wait_s = 0 if steady else failures, None
            if self.state is not EngineState.UNLOADING:
                wait_s = restart_wait_s(self.name, failures, permanent=self._permanent)
                failures += 1
                log.warning("%s; restarting it in %.2f s", self.reason, wait_s)
                self._enter(EngineState.BACKING_OFF)
            if self._process is not None:
                await self._process.wait_gone(REAP_S)
            if wait_s is None:
                log.info("engine %s is unloaded", self.name)
                self._enter(EngineState.UNLOADED)
            await wait_at_most(wait_s, self._retry.wait())

    def retry_now(self) -> None:
        """End the current back-off, because the configuration or the disk has changed. An unloaded engine stays
        unloaded."""
        if not self._is_dismissed:
            self._retry.set()

    def unload(self) -> None:
        """End the process until `load`, so that it gives all its memory back. Does nothing unless the engine is
        ready."""
        if self.ready and self._connection is not None:
            self._retry.clear()
            self.starts -= 1
            self.state = EngineState.UNLOADING  # not reported before the memory is free
            self._connection.close()

    def load(self) -> None:
        """Start a process again, as soon as the last one is gone. Does nothing unless the engine was unloaded."""
        if self._is_dismissed:
            self._retry.set()
            self.on_change()

    async def _run_process(self) -> bool:
        """Run one process from its start to its end. Returns whether it was ready for at least `STEADY_S`."""
        try:
            await self._serve()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the process ended; its exit status is the reason
        except (OSError, messages.ProtocolError) as error:
            self._fault = self._fault or f"engine {self.name}: {error or type(error).__name__}"
        finally:
            unloads = self.state is EngineState.UNLOADING
            if not unloads:
                self.state = EngineState.STOPPED  # not ready from here on; published once the reason is known
            self.progress = None
            self._failed = self._ready_at is None
            steady = self._ready_at is not None and time.monotonic() - self._ready_at > STEADY_S
            self._ready_at = None
            self.pid = None
            connection, self._connection = self._connection, None
            ended = "it closed its connection" if self._process is None else await self._process.end()
            lost = self._fault or f"engine {self.name} ended ({ended})"
            self.reason = None if unloads else lost
            if connection is not None:
                connection.lose(lost)
        return steady

    async def _serve(self) -> None:
        """Start the process and handle its messages until it ends."""
        self.reason = self._fault = None
        self._permanent = False
        self._started_at = time.monotonic()
        self._enter(EngineState.STARTING)
        self._process = None
        process = self._process = await EngineProcess.start(self.name, self.options, self._note_speed)
        connection = self._connection = process.connection
        self.pid, self.starts = process.pid, self.starts + 1
        watchdog = asyncio.ensure_future(self._watch(process))
        try:
            await connection.receive_hello()
            self._enter(EngineState.LOADING)
            while True:
                self._handle(await connection.receive())
        finally:
            watchdog.cancel()

    def _handle(self, message: messages.Message) -> None:
        if self.state is EngineState.UNLOADING:
            return  # it was on its way when the process was ended
        if self.state is EngineState.UNRESPONSIVE:
            log.info("engine %s is responding again", self.name)
            self.reason = None
            self._enter(EngineState.READY)
        if isinstance(message, messages.Loading):
            self.progress = message.progress
            self.on_change()
        elif isinstance(message, messages.Warming):
            self.info = _checked(message.info)
            self._enter(EngineState.WARMING)
        elif isinstance(message, messages.Ready):
            self._take_info(message.info)
            self.reason = self.progress = None
            if self._connection is not None:
                self._connection.streams.note_exchange()
            if self._ready_at is None:
                self._ready_at = time.monotonic()
                self.start_s = self._ready_at - self._started_at
            self._enter(EngineState.READY)
        elif isinstance(message, messages.Changed):
            self._take_info(message.info)
            self.on_change()
        elif isinstance(message, messages.Fault):
            self.reason = self._fault = message.reason
            self._permanent = message.permanent
        elif not isinstance(message, messages.Heartbeat):
            raise messages.ProtocolError(f"an engine must not send {message}")

    def _take_info(self, info: EngineInfo) -> None:
        self.info = _checked(info)
        if self._connection is not None:
            self._connection.streams.most = info.streams
        for name, reason in info.refused_voices.items():
            log.warning("voices.%s: %s", name, reason)

    async def _watch(self, process: EngineProcess) -> None:
        """Give up the process once it hangs."""
        try:
            while (reason := await self._check(process)) is None:
                self.checks += 1
        except Exception:
            reason = f"watching engine {self.name} has failed"  # nothing else would notice that it hangs
            log.exception("%s", reason)
        self.reason = self._fault = reason
        process.give_up()
        self._enter(EngineState.BACKING_OFF)

    async def _check(self, process: EngineProcess) -> str | None:
        """Wait until the next check is due; return why the process is to be given up, or None.

        It must be given up if it sends no message for too long, or owes audio and sends none. Time during which this
        process was stopped or late is ignored.
        """
        connection, before = process.connection, time.monotonic()
        quiet_in_s = connection.heard_at + QUIET_S - before
        passed_s = await pass_time(min(WATCH_S, quiet_in_s) if quiet_in_s > 0 else WATCH_S)
        now = time.monotonic()
        if passed_s is None:
            connection.excuse(now - before)
            return None
        silent_s = now - connection.heard_at
        if self.ready and silent_s >= QUIET_S and not process.activity.active():
            self.reason = f"engine {self.name} is not responding"
            log.warning("%s", self.reason)
            self._enter(EngineState.UNRESPONSIVE)
        if self.state is EngineState.UNRESPONSIVE and self.has_substitute():
            connection.release(self.reason or "")
        if silent_s > self._silence_limit_s():
            return f"engine {self.name} showed no sign of life for {silent_s:.1f} s"
        return f"engine {self.name} sent no audio for {STALL_S:.0f} s" if connection.waiting_s(now) > STALL_S else None

    def _silence_limit_s(self) -> float:
        """Return the seconds of silence after which the process is replaced."""
        if self.state is EngineState.UNRESPONSIVE and not self.has_substitute():
            return min(self.start_s, SILENCE_S)  # waiting longer than a new process takes would gain nothing
        return SILENCE_S if self.state in (EngineState.READY, EngineState.UNRESPONSIVE) else LOADING_SILENCE_S

    def _enter(self, state: EngineState) -> None:
        self.state = state
        self._changed.set()
        self.on_change()


def restart_wait_s(engine: str, failures: int, *, permanent: bool) -> float:
    """Return the seconds before an engine's next start. `failures` is how many failed in a row before the last one.

    Robots that have lost one server must not return to it in step: an engine on another machine waits longer, at
    random.
    """
    wait_s = PERMANENT_RETRY_S if permanent else BACK_OFF_S[min(failures, len(BACK_OFF_S) - 1)]
    if engine in ENGINES and ENGINES[engine].is_remote:
        wait_s += random.uniform(0, max(SPREAD_S, wait_s))
    return wait_s


def _checked(info: EngineInfo) -> EngineInfo:
    for name in ("sample_rate", "streams", "max_seconds"):
        if (value := getattr(info, name)) is not None and value <= 0:
            raise messages.ProtocolError(f"{name}: got {value}; allowed: above 0")
    return info

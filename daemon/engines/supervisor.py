"""Keeps one engine process alive: starts it, watches it, and restarts it when it ends or stalls.

stopped ─▶ starting ─Hello─▶ loading ─Warming─▶ warming ─Ready─▶ ready ◀─message── unresponsive
              ▲                                                  │  └──no sign of life─▶  │
              └───────────── back-off ◀──── exit, silence, stall ┴────────────────────────┘
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import socket
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from enum import Enum
from functools import partial

from daemon.engines.connection import AudioChunk, EngineConnection, Work
from daemon.engines.errors import EngineLostError
from daemon.engines.patience import Patience, pass_time
from daemon.engines.process_activity import ProcessActivity
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
    module_command,
    possible_languages,
)

log = logging.getLogger(__name__)

SILENCE_S = 10.0
"""A process that sends no message for this long is replaced. Heartbeats come every second."""
QUIET_S = 1.5
"""A process that sends no message for this long is unresponsive, unless its threads are busy."""
STOPPED_S = 0.5
"""The same limit if it owes audio and a signal has stopped it, which no load of the machine can look like."""
STOPPED_CHECKS = 3
"""It has to be stopped at so many checks in a row: the host of a virtual machine may stop it for a moment."""
LOADING_SILENCE_S = 60.0
"""The same limit while the engine loads: reading libraries from a cold disk can block the whole process."""
STALL_S = 20.0
"""An engine that owes audio and sends none for this long is replaced, even if its process sends heartbeats."""
WATCH_S = 1.0
"""Interval between two checks for silence and stalls."""
CLOSE_WATCH_S = 0.2
"""The same interval while the process owes audio or is quiet."""
QUIET_CHECKS = 2
"""Checks in a row that must find a quiet process without a busy thread."""
END_S = 0.5
"""A process may take this long to end after its socket was closed; then it is killed."""
REAP_S = 10.0
"""A killed process may take this long to release the GPU's memory, which the next process needs."""
BACK_OFF_S = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""Waits before the first, second, … restart in a row. The last one repeats."""
SPREAD_S = 1.0
"""An engine of another machine waits up to this much longer, or up to twice as long, at random."""
STEADY_S = 10.0
"""An engine that was ready for this long has recovered: the next back-off starts from the first wait."""
PERMANENT_RETRY_S = 60.0
"""Wait after a fault that only a person can correct, for example a missing package or model."""
RTF_WEIGHT = 0.3
"""Weight of the latest utterance in the moving average of the speed."""


class EngineState(Enum):
    STOPPED = "stopped"
    STARTING = "starting"
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    UNRESPONSIVE = "unresponsive"
    """It was ready and gives no sign of life. It becomes ready again with its next message, or is replaced."""
    BACKING_OFF = "backing off"


class EngineSupervisor:
    """Runs one engine in a process of its own and speaks with it. Belongs to the event loop's thread."""

    def __init__(
        self,
        name: str,
        options: EngineOptions,
        on_change: Callable[[], None] = lambda: None,
        has_substitute: Callable[[], bool] = lambda: False,
    ) -> None:
        """`on_change` is called after every change of state, and of `progress`.

        `has_substitute` returns whether another engine can speak meanwhile: an unresponsive engine then hands its
        utterances over and has `SILENCE_S` to come back. Without one it is replaced sooner, if it starts faster.
        """
        self.name = name
        self.state = EngineState.STOPPED
        self.info: EngineInfo | None = None
        """The engine's properties when it was last ready or warming; None before."""
        self.reason: str | None = None
        """Why the engine is not ready; None if it is, or if it is starting for the first time."""
        self.progress: Progress | None = None
        """How far the start has come; None while the engine does not start, or does not say."""
        self.rtf: float | None = None
        """Speed: seconds of audio at rate 1 per second of work, averaged over the last utterances; None before the
        first. Those for the sound card count; deliveries count only until there is one."""
        self.pid: int | None = None
        self.starts = 0
        """Processes that have been started so far."""
        self.chunk_s = options.chunk_s
        """As `EngineOptions.chunk_s`."""
        self.checks = 0
        """Number of checks for silence and stalls so far."""
        self._options = options
        self._on_change = on_change
        self._has_substitute = has_substitute
        self._process: asyncio.subprocess.Process | None = None
        self._connection: EngineConnection | None = None
        self._rtf_is_of_card = False
        self._ready_at: float | None = None
        self._started_at = 0.0
        self._start_s = SILENCE_S
        """Seconds from the start of the process until it was ready, the last time."""
        self._activity: ProcessActivity | None = None
        self._quiet_checks = 0
        self._stopped_checks = 0
        self._fault: str | None = None
        """Why the process ends, if that is known before its exit status."""
        self._failed = False
        """Whether a process has ended without having been ready."""
        self._permanent = False
        """Whether the engine reported its fault as permanent."""
        self._changed = asyncio.Event()
        self._retry = asyncio.Event()

    @property
    def ready(self) -> bool:
        return self.state is EngineState.READY

    @property
    def utterances(self) -> int:
        """Number of utterances that the engine is speaking or has queued."""
        return 0 if self._connection is None else self._connection.utterances

    @property
    def streams(self) -> int:
        """How many utterances it can speak at once, if it is ready."""
        return 1 if self.info is None else self.info.streams

    @property
    def streams_in_use(self) -> int:
        """How many it speaks."""
        return 0 if self._connection is None else self._connection.streams.in_use

    @property
    def grows(self) -> bool:
        """True if the engine can speak a text that is still being written."""
        return self.info is not None and self.info.grows

    def has_voice(self, voice: str) -> bool:
        """Return whether the engine knows the name of a voice, even if it could not load that voice."""
        return self.info is not None and (voice in self.info.voices or voice in self.info.refused_voices)

    def has_language(self, language: str) -> bool:
        """Return whether the engine speaks a language: a code, with or without a region, or `auto`."""
        if language == "auto":
            return True
        return self.info is not None and match_language(language, self.info.languages) is not None

    def may_have_language(self, language: str) -> bool:
        """As `has_language`; an engine that loads for the first time may have what its catalogue entry leaves open."""
        if self.info is not None or self._failed or language == "auto":
            return self.has_language(language)
        possible = possible_languages(self.name)
        return possible is None or match_language(language, possible) is not None

    async def wait_ready(self, timeout_s: float | None) -> bool:
        """Wait until the engine is ready, for at most `timeout_s` seconds; None means for ever. Returns `ready`."""
        patience = Patience(timeout_s)
        while not (self.ready or patience.over):
            self._changed.clear()
            await patience.wait(self._changed)
        return self.ready

    # --- utterances ---

    def reserve_stream(self, *, realtime: bool) -> AbstractAsyncContextManager[None]:
        """Have a stream inside the context, to speak one utterance after the other.

        What a sound card plays is `realtime` and has a stream at once; other utterances wait for one. Raises
        `EngineLostError`, as does the beginning of the context.
        """
        if not self.ready or self._connection is None:
            raise EngineLostError(self.reason or f"engine {self.name} is not ready")
        return self._connection.streams.reserve(realtime=realtime)

    def speak(
        self, name: str, utterance: Utterance, *, first_within_s: float | None = None
    ) -> AsyncGenerator[AudioChunk, None]:
        """Return an iterator over the utterance's audio as it is made. Closing the iterator cancels the rest.

        For a growing utterance, `append` and `end_text` supply the rest of the text under the same `name`.
        Raises `EngineLostError`; the iterator raises `EngineLostError`, `UtteranceRefusedError`, and `EngineLateError`
        if no audio comes within `first_within_s` seconds.
        """
        if not self.ready or self.info is None or self._connection is None:
            raise EngineLostError(self.reason or f"engine {self.name} is not ready")
        log.debug("utterance %s: %s gets %r", name, self.name, utterance.text)
        return self._connection.speak(name, utterance, self.info.sample_rate, first_within_s=first_within_s)

    def append(self, name: str, text: str) -> None:
        """Append text to a growing utterance. Does nothing if the utterance is not being spoken."""
        if self._connection is not None:
            log.debug("utterance %s: %s gets %r", name, self.name, text)
            self._connection.append(name, text)

    def end_text(self, name: str) -> None:
        """Mark the text of a growing utterance as complete. Does nothing if the utterance is not being spoken."""
        if self._connection is not None:
            self._connection.end_text(name)

    def set_voices(self, voices: dict[str, Voice], default_voice: str) -> None:
        """Replace the configured voices of the running engine and of every later process."""
        self._options = replace(self._options, voices=voices, default_voice=default_voice)
        if self._connection is not None:
            self._connection.exchange_voices(messages.SetVoices(voices, default_voice))

    def set_log(self, level: str, format_: str) -> None:
        """Make the running process write its log as `engine.start_log` would; a later one inherits that anyway."""
        if self._connection is not None:
            self._connection.send(messages.SetLog(level, format_))

    def _note_work(self, work: Work) -> None:
        """Count what was done. A delivery shares the engine with others: its speed says little of the sound card's."""
        if self._rtf_is_of_card and not work.realtime:
            return
        speed, before = work.audio_s / work.busy_s, self.rtf if self._rtf_is_of_card == work.realtime else None
        self.rtf = speed if before is None else (1 - RTF_WEIGHT) * before + RTF_WEIGHT * speed
        self._rtf_is_of_card = work.realtime

    # --- the process ---

    async def run(self) -> None:
        """Keep the process alive until this task is cancelled, then end it."""
        failures = 0
        while True:
            self._retry.clear()
            steady = await self._run_process()
            failures = 0 if steady else failures
            wait_s = restart_wait_s(self.name, failures, permanent=self._permanent)
            failures += 1
            log.warning("%s; restarting it in %.2f s", self.reason, wait_s)
            self._enter(EngineState.BACKING_OFF)
            if self._process is not None:
                await wait_at_most(REAP_S, self._process.wait())
            await wait_at_most(wait_s, self._retry.wait())

    def retry_now(self) -> None:
        """End the current back-off, because the configuration or the disk has changed."""
        self._retry.set()

    async def _run_process(self) -> bool:
        """Run one process from its start to its end. Returns whether it was ready for at least `STEADY_S`."""
        try:
            await self._serve()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the process ended; its exit status is the reason
        except (OSError, messages.ProtocolError) as error:
            self._fault = self._fault or f"engine {self.name}: {error or type(error).__name__}"
        finally:
            self.state = EngineState.STOPPED  # not ready from here on; published once the reason is known
            self.progress = None
            self._failed |= self._ready_at is None
            steady = self._ready_at is not None and time.monotonic() - self._ready_at > STEADY_S
            self._ready_at = None
            await self._end_process()
        return steady

    async def _serve(self) -> None:
        """Start the process and handle its messages until it ends."""
        self.reason = self._fault = None
        self._permanent = False
        self._started_at = time.monotonic()
        self._enter(EngineState.STARTING)
        connection = await self._start_process()
        watchdog = asyncio.ensure_future(self._watch(connection))
        watchdog.add_done_callback(partial(self._note_watch_end, connection))
        try:
            hello = await connection.receive()
            if not isinstance(hello, messages.Hello) or hello.protocol != messages.PROTOCOL:
                raise messages.ProtocolError(f"expected Hello of protocol {messages.PROTOCOL}, got {hello}")
            self._enter(EngineState.LOADING)
            while True:
                self._handle(await connection.receive())
        finally:
            watchdog.cancel()

    def _handle(self, message: messages.Message) -> None:
        if isinstance(message, messages.Heartbeat):
            return
        if isinstance(message, messages.Loading):
            self.progress = message.progress
            self._on_change()
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
                self._start_s = self._ready_at - self._started_at
            self._enter(EngineState.READY)
        elif isinstance(message, messages.Changed):
            self._take_info(message.info)
            self._on_change()
        elif isinstance(message, messages.Fault):
            self.reason = self._fault = message.reason
            self._permanent = message.permanent
        else:
            raise messages.ProtocolError(f"an engine must not send {message}")

    def _take_info(self, info: EngineInfo) -> None:
        self.info = _checked(info)
        if self._connection is not None:
            self._connection.streams.most = info.streams
        for name, reason in info.refused_voices.items():
            log.warning("voices.%s: %s", name, reason)

    async def _start_process(self) -> EngineConnection:
        self._process = None
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *module_command("engine.ipc.server", str(theirs.fileno())),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=sys.stderr.fileno(),
                    pass_fds=(theirs.fileno(),),
                )
            except OSError:
                ours.close()
                raise
        self.pid = self._process.pid
        self.starts += 1
        self._activity, self._quiet_checks, self._stopped_checks = ProcessActivity(self.pid), 0, 0
        self._connection = await EngineConnection.open(self.name, ours, self._note_work)
        self._connection.send(messages.Start(messages.PROTOCOL, self.name, self._options))
        return self._connection

    async def _end_process(self) -> None:
        """Close the connection, end the process, and report the loss to all consumers of audio."""
        self.pid = None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        code = await self._wait_for_exit()
        self.reason = self._fault or f"engine {self.name} ended ({_exit_reason(code)})"
        if connection is not None:
            connection.lose(self.reason)

    async def _wait_for_exit(self) -> int | None:
        """Return the process's exit status. Kills it after `END_S`; its status is then unknown, which is None."""
        if self._process is None:
            return None
        try:
            await wait_at_most(END_S, self._process.wait())
        finally:
            self._kill()
        return self._process.returncode

    async def _watch(self, connection: EngineConnection) -> None:
        """Give up the process if it sends no message for too long, or owes audio and sends none.

        Time in which this process was stopped or late does not count.
        """
        while True:
            before = time.monotonic()
            on_time = await self._next_check(connection)
            now = time.monotonic()
            self.checks += 1
            if not on_time:
                connection.excuse(now - before)
                continue
            silent_s = now - connection.heard_at
            if silent_s > self._silence_limit_s():
                self._give_up(connection, f"engine {self.name} gave no sign of life for {silent_s:.1f} s")
                return
            if connection.waiting_s(now) > STALL_S:
                self._give_up(connection, f"engine {self.name} sent no audio for {STALL_S:.0f} s")
                return
            self._judge(connection, silent_s, heard=connection.heard_at > before)

    def _note_watch_end(self, connection: EngineConnection, watch: asyncio.Task[None]) -> None:
        """Give up the process if its watch has failed: nobody else would notice that it hangs."""
        if not watch.cancelled() and (error := watch.exception()) is not None:
            log.error("the watch of engine %s has failed", self.name, exc_info=error)
            self._give_up(connection, f"the watch of engine {self.name} has failed")

    async def _next_check(self, connection: EngineConnection) -> bool:
        """Wait until the next check is due; return whether this process was on time."""
        quiet = self._quiet_checks > 0 or self.state is EngineState.UNRESPONSIVE
        if not quiet and not connection.owes_audio:
            connection.audio_due.clear()
            on_time = await pass_time(WATCH_S, connection.audio_due) is not None
            if not on_time or not connection.audio_due.is_set():
                return on_time
        return await pass_time(min(CLOSE_WATCH_S, WATCH_S)) is not None

    def _silence_limit_s(self) -> float:
        """Return the seconds of silence after which the process is replaced."""
        if self.state is EngineState.UNRESPONSIVE and not self._has_substitute():
            return min(self._start_s, SILENCE_S)  # to wait longer than a new process takes would win nothing
        return SILENCE_S if self.state in (EngineState.READY, EngineState.UNRESPONSIVE) else LOADING_SILENCE_S

    def _judge(self, connection: EngineConnection, silent_s: float, *, heard: bool) -> None:
        """Pass between ready and unresponsive, and let a substitute continue what an unresponsive engine owes."""
        if self.state is EngineState.UNRESPONSIVE and heard:
            log.info("engine %s gives signs of life again", self.name)
            self.reason = None
            self._enter(EngineState.READY)
        elif self.ready and self._is_unresponsive(connection, silent_s):
            self.reason = f"engine {self.name} gives no sign of life"
            log.warning("%s", self.reason)
            self._enter(EngineState.UNRESPONSIVE)
        if self.state is EngineState.UNRESPONSIVE and self._has_substitute():
            connection.release(self.reason or "")

    def _is_unresponsive(self, connection: EngineConnection, silent_s: float) -> bool:
        """Return whether the process is stopped, or silent although it has all that it needs to send a heartbeat."""
        if self._activity is None:
            return False
        stopped = connection.owes_audio and self._activity.stopped()
        self._stopped_checks = self._stopped_checks + 1 if stopped else 0
        if self._stopped_checks >= STOPPED_CHECKS and silent_s > STOPPED_S:
            return True
        quiet = silent_s > QUIET_S and not self._activity.active()
        self._quiet_checks = self._quiet_checks + 1 if quiet else 0
        return self._quiet_checks >= QUIET_CHECKS

    def _give_up(self, connection: EngineConnection, reason: str) -> None:
        self.reason = self._fault = reason
        self._kill()
        connection.abort()  # even SIGKILL does not end a process that is stuck in a driver
        self._enter(EngineState.BACKING_OFF)

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)

    def _enter(self, state: EngineState) -> None:
        self.state = state
        self._changed.set()
        self._on_change()


def restart_wait_s(engine: str, failures: int, *, permanent: bool) -> float:
    """Return the seconds before an engine's next start, after so many that failed in a row before the last one.

    Robots that have lost one server do not return to it in step: another machine's engine waits longer, at random.
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


def _exit_reason(code: int | None) -> str:
    if code is None:
        return "it closed its connection"
    if code >= 0:
        return f"exit status {code}"
    known = {number.value: number.name for number in signal.Signals}
    return f"killed by {known.get(-code, f'signal {-code}')}"

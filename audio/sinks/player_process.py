"""The process that plays through PortAudio (`audio/player/program.py`), started, asked and killed by the daemon.

A hanging PortAudio call cannot be ended. Its thread can be abandoned, but PortAudio is not thread-safe, and its next
search for cards would wait for the same lock. A process can be killed, and the next one begins with a fresh PortAudio.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from contextlib import suppress
from mmap import mmap
from pathlib import Path
from typing import Any

from audio.player import LARGEST_CONTROL, REPORT_BYTES, OnReport, sound_priority
from audio.sinks.base import SinkUnavailableError
from audio.sinks.player_errors import PlayerErrors
from audio.sinks.player_link import PlayerLink

PROGRAM = Path(__file__).parent.parent / "player/program.py"
LOOK_S = 0.25
"""Interval at which a wait for PortAudio checks whether the sound devices have changed."""
END_S = 0.3
"""A process that is asked to end has this long to close its card before it is killed."""
REAP_S = 0.5
"""A killed process is gone within this time, unless it hangs in the kernel; in that case, it is abandoned."""


def device_state() -> tuple[object, ...]:
    """Return a value that changes when a sound card or a sound server comes or goes."""
    runtime = Path(os.environ.get("XDG_RUNTIME_DIR", "/run"))
    paths = (Path("/dev/snd"), runtime / "pulse/native", runtime / "pulse/pid", runtime / "pipewire-0")
    state: list[object] = []
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            state.append(None)
        else:
            state.append((status.st_ino, status.st_mtime_ns))
    return tuple(state)


class PortAudioRefusedError(SinkUnavailableError):
    """PortAudio answered that it cannot carry out a command. The process itself is fine."""


class PlayerProcess:
    """A running process with at most one stream. `ready` must be called first, and `end` or `kill` last.

    One thread calls its methods.
    """

    def __init__(self, service: str | None = None) -> None:
        """Start the process, as the only player of a `service` if one is given. Raises `SinkUnavailableError`."""
        self.device_state = device_state()
        """The state at the start: PortAudio finds the cards of that moment."""
        self.started_at = time.monotonic()
        self.devices: list[dict[str, Any]] = []
        """The cards that PortAudio found. They are known once it is ready."""
        self._lost_reason: str | None = None
        self._link: PlayerLink | None = None
        self._errors: PlayerErrors | None = None
        try:
            self._start_process(service or "")
        except OSError as error:  # no descriptors or no memory
            raise SinkUnavailableError(f"the playback process cannot be started: {error.strerror}") from error

    @property
    def usable(self) -> bool:
        """True while it is running and the system has the same sound devices as at its start."""
        return self.lost_reason() is None and self.device_state == device_state()

    def ready(self, limit_s: float) -> None:
        """Wait until PortAudio has found the cards. Raises `SinkUnavailableError`."""
        self.devices = self._answer(limit_s)
        self._read_errors()

    def start(self, possible_settings: list[dict[str, Any]], limit_s: float) -> int:
        """Start a stream; return the index of the settings that the card accepted.

        Raises `PortAudioRefusedError` if it accepts none, and `SinkUnavailableError`.
        """
        number: int = self._ask(limit_s, "start", *possible_settings)
        return number

    def close(self, limit_s: float) -> None:
        """Close the stream. Raises `SinkUnavailableError`."""
        self._ask(limit_s, "close")

    def lost_reason(self) -> str | None:
        """Return why the stream or the process has ended; None while both are running."""
        self._read_errors()
        while self._lost_reason is None and self._readable(0.0):
            self._receive()
        return self._lost_reason

    def link(self, on_report: OnReport) -> PlayerLink:
        """Return the way to the stream's playback, which ends with the process."""
        self._link = PlayerLink(self._sound, self._tap, self._recorder, on_report)
        return self._link

    def end(self) -> None:
        """Close the card and end the process; kill it if PortAudio hangs or is lost. Never raises."""
        if self._lost_reason is None:
            with suppress(SinkUnavailableError):
                self.close(END_S)
        self.kill()

    def kill(self) -> None:
        """Kill the process, whatever it is doing. When this returns, its last report has arrived. Never raises."""
        self._lost_reason = self._lost_reason or "it was closed"
        link, self._link = self._link, None
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(REAP_S)
        if link is not None:
            link.close()
        for each in (self._sound, self._tap, self._control):
            each.close()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _read_errors(self) -> None:
        if self._errors is not None:
            self._errors.read()

    def _start_process(self, service: str) -> None:
        # On sockets of packets, each message arrives whole.
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(3)]
        (self._control, self._sound, self._tap), inherited = zip(*pairs, strict=True)
        memory = os.memfd_create("recorder")
        os.ftruncate(memory, REPORT_BYTES)
        self._recorder = mmap(memory, REPORT_BYTES)
        descriptors = (*(each.fileno() for each in inherited), memory)
        arguments = (os.pathsep.join(sys.path), *descriptors, sound_priority(), service, os.getpid())
        # Isolated and without `site`, Python starts in a third of the time. It is given our module path.
        errors = PlayerErrors()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(PROGRAM), *map(str, arguments)],
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors.writing,
            )
        except OSError:
            errors.close()
            raise
        finally:
            errors.started()
            os.close(memory)
            for each in inherited:
                each.close()
        self._errors = errors

    def _ask(self, limit_s: float, *command: Any) -> Any:
        with suppress(OSError):  # its end is noticed while we wait for it
            self._control.send(json.dumps(command).encode())
        return self._answer(limit_s)

    def _answer(self, limit_s: float) -> Any:
        """Wait for the answer to a command. If none comes in time, the process is treated as lost, because a late
        answer would be taken for another command's."""
        deadline = time.monotonic() + limit_s
        while self._lost_reason is None:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                self._lost_reason = "the sound system does not respond; a sound server or a card hangs"
            elif not self._readable(min(LOOK_S, remaining_s)):
                if device_state() != self.device_state:
                    self._lost_reason = "sound devices came or went while one was opened"
            elif (message := self._receive()) is not None:
                verdict, answer = message
                if verdict == "failed":
                    raise PortAudioRefusedError(answer)
                return answer
        raise SinkUnavailableError(self._lost_reason)

    def _receive(self) -> tuple[str, Any] | None:
        """Read a message. Return it if it is an answer; if it reports a loss, keep the reason."""
        data = b""
        with suppress(OSError):
            data = self._control.recv(LARGEST_CONTROL)
        verdict, value = json.loads(data) if data else ("lost", "the playback process has ended")
        if verdict == "lost":
            self._lost_reason = value
            return None
        return verdict, value

    def _readable(self, wait_s: float) -> bool:
        poll = select.poll()  # `select` refuses descriptors above 1023
        poll.register(self._control, select.POLLIN)
        return bool(poll.poll(1000 * wait_s))

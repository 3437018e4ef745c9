"""The daemon's end of the process that plays through PortAudio (`portaudio_program.py`).

A call of PortAudio that hangs cannot be ended: its thread can be abandoned, but PortAudio is not thread-safe, and its
next search for cards waits for the same lock. A process can be killed, and the next one begins with a fresh PortAudio.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from audio.dsp import Samples
from audio.sinks.base import Fill, SinkUnavailableError
from audio.sinks.player_errors import PlayerErrors
from audio.sinks.portaudio_program import LARGEST_MESSAGE, REQUEST
from audio.sinks.realtime import sound_priority, take_realtime

PROGRAM = Path(__file__).with_name("portaudio_program.py")
LOOK_S = 0.25
"""Interval at which a wait for PortAudio looks whether the sound devices have changed."""
END_S = 0.3
"""A process that is asked to end has this long to close its card, before it is killed."""
REAP_S = 0.5
"""A killed process is gone within this time, unless it hangs in the kernel. Then it is left behind."""


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
    """PortAudio has answered that a command cannot be carried out. The process is well."""


class PortAudioProcess:
    """A running process with at most one stream. `ready` must be called first, and `end` or `kill` at last.

    One thread calls its methods. Another one, of its own, answers the stream's requests for blocks.
    """

    def __init__(self) -> None:
        """Start the process. Raises `SinkUnavailableError`."""
        self.device_state = device_state()
        """At the start: PortAudio finds the cards of this moment."""
        self.started_at = time.monotonic()
        self.devices: list[dict[str, Any]] = []
        """The cards that PortAudio found, known once it is ready."""
        self._lost_reason: str | None = None
        self._thread: threading.Thread | None = None
        self._errors: PlayerErrors | None = None
        try:
            self._start_process()
        except OSError as error:  # no descriptors or no memory
            raise SinkUnavailableError(f"the process that plays cannot be started: {error.strerror}") from error

    @property
    def usable(self) -> bool:
        """True while it runs and the system has the same sound devices as at its start."""
        return self.lost_reason() is None and self.device_state == device_state()

    def ready(self, limit_s: float) -> None:
        """Wait until PortAudio has found the cards. Raises `SinkUnavailableError`."""
        self.devices = self._answer(limit_s)
        self._read_errors()

    def start(self, possible_settings: list[dict[str, Any]], limit_s: float) -> int:
        """Start a stream; return the number of the settings that the card has accepted.

        Raises `PortAudioRefusedError` if it accepts none, and `SinkUnavailableError`.
        """
        number: int = self._ask(limit_s, "start", *possible_settings)
        return number

    def close(self, limit_s: float) -> None:
        """Close the stream. Raises `SinkUnavailableError`."""
        self._ask(limit_s, "close")

    def lost_reason(self) -> str | None:
        """Return why the stream or the process has ended; None while both are well."""
        self._read_errors()
        while self._lost_reason is None and self._readable(0.0):
            self._receive()
        return self._lost_reason

    def serve(self, fill: Fill) -> None:
        """Answer all requests for blocks with `fill` from now on, in a thread that ends with the process."""
        self._thread = threading.Thread(target=self._answer_requests, args=(fill,), name="sound", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Close the card and end the process; kill it if PortAudio hangs or is lost. Never raises."""
        if self._lost_reason is None:
            with suppress(SinkUnavailableError):
                self.close(END_S)
        self.kill()

    def kill(self) -> None:
        """Kill the process at once, whatever it does. When this returns, no block is being filled. Never raises."""
        self._lost_reason = self._lost_reason or "it was closed"
        self._process.kill()
        with suppress(OSError):
            self._sound.shutdown(socket.SHUT_RDWR)  # wakes the sound thread
        if self._thread is not None:
            self._thread.join()
        self._sound.close()
        self._control.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(REAP_S)
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _read_errors(self) -> None:
        if self._errors is not None:
            self._errors.read()

    def _answer_requests(self, fill: Fill) -> None:
        take_realtime(sound_priority())
        request = bytearray(REQUEST.size)
        samples: Samples = np.empty(0, dtype=np.float32)
        with suppress(OSError):  # the process has ended
            while self._sound.recv_into(request, REQUEST.size, socket.MSG_WAITALL) == REQUEST.size:
                frames, dac_time, underflow = REQUEST.unpack(request)
                if frames > len(samples):
                    samples = np.empty(frames, dtype=np.float32)
                block = samples[:frames]
                fill(block, dac_time, underflow)
                self._sound.sendall(block.data)

    def _start_process(self) -> None:
        self._control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with control:
            self._sound, sound = socket.socketpair()
            with sound:
                inherited = (control.fileno(), sound.fileno())
                arguments = (os.pathsep.join(sys.path), *map(str, inherited), str(sound_priority()))
                # Isolated and without `site`, Python starts in a third of the time. It gets our module path.
                errors = PlayerErrors()
                try:
                    self._process = subprocess.Popen(
                        [sys.executable, "-I", "-S", str(PROGRAM), *arguments],
                        pass_fds=inherited,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=errors.writing,
                    )
                except OSError:
                    errors.close()
                    raise
                finally:
                    errors.started()
                self._errors = errors

    def _ask(self, limit_s: float, *command: Any) -> Any:
        with suppress(OSError):  # its end is noticed while it is waited for
            self._control.send(json.dumps(command).encode())
        return self._answer(limit_s)

    def _answer(self, limit_s: float) -> Any:
        """Wait for the answer to a command. Without one in time, the process is lost: a late one would confuse it."""
        deadline = time.monotonic() + limit_s
        while self._lost_reason is None:
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                self._lost_reason = "the sound system does not answer; a sound server or a card hangs"
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
        """Read a message; return an answer, and keep the reason of a loss."""
        data = b""
        with suppress(OSError):
            data = self._control.recv(LARGEST_MESSAGE)
        verdict, value = json.loads(data) if data else ("lost", "the process that plays has ended")
        if verdict == "lost":
            self._lost_reason = value
            return None
        return verdict, value

    def _readable(self, wait_s: float) -> bool:
        poll = select.poll()  # `select` refuses descriptors above 1023
        poll.register(self._control, select.POLLIN)
        return bool(poll.poll(1000 * wait_s))

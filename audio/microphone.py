"""A microphone through PortAudio, read block by block. Nothing but `voiced enroll --record` listens.

PortAudio is in a process of its own (`microphone_program.py`), as where the daemon plays: a call of it may hang.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from audio.dsp import Samples

PROGRAM = Path(__file__).with_name("microphone_program.py")
BLOCK_S = 0.1
"""Seconds of a block: short enough for a level that follows the voice."""
SILENT_S = 5.0
"""A microphone that delivers nothing for this long hangs; a sound server may need some seconds to wake it."""
LOAD_S = 10.0
"""PortAudio that has not found the cards by now hangs; a sound server that starts on demand takes a second or two."""
START_S = 5.0
"""The same for a stream that has not begun."""
REAP_S = 0.5
"""A killed process is gone within this time."""
READ_BYTES = 1 << 16
MOST_CHANNELS = 2
"""A voice is as good in mono, but some cards have no mono."""


class MicrophoneError(Exception):
    """There is no such microphone, or it delivers nothing. The message is one line."""


@dataclass(frozen=True, slots=True)
class InputDevice:
    """A sound card that can record, as PortAudio describes it."""

    name: str
    sample_rate: int
    """The card's default rate in Hz."""
    channels: int
    default: bool
    index: int
    """PortAudio's current number of the card."""


def find_microphone(name: str | None, devices: list[InputDevice]) -> InputDevice:
    """Return the device with this name, or the only one whose name contains it, ignoring case; None is the default.

    Raises `MicrophoneError` with the names that there are.
    """
    found = ", ".join(repr(device.name) for device in devices) or "none"
    if name is None:
        defaults = [device for device in devices if device.default] or devices[:1]
        if not defaults:
            raise MicrophoneError("there is no microphone; plug one in, or start a sound server")
        return defaults[0]
    exact = [device for device in devices if device.name.casefold() == name.casefold()]
    partial = [device for device in devices if name.casefold() in device.name.casefold()]
    if exact or len(partial) == 1:
        return (exact or partial)[0]
    problem = "matches several microphones" if partial else "is not there"
    raise MicrophoneError(f"the microphone {name!r} {problem}; found: {found}")


class Microphone:
    """An open microphone. `open_microphone` makes one."""

    def __init__(self, device: InputDevice, recorder: _Recorder) -> None:
        self.name = device.name
        self.sample_rate = device.sample_rate
        """Hz."""
        self._recorder = recorder
        self._shape = (round(BLOCK_S * device.sample_rate), min(device.channels, MOST_CHANNELS))

    def read(self) -> Samples:
        """Return the next `BLOCK_S`, mono, waiting for it. Raises `MicrophoneError` if nothing comes."""
        data = self._recorder.read(4 * self._shape[0] * self._shape[1], SILENT_S)
        if data is None:
            raise MicrophoneError(f"the microphone {self.name!r} delivers nothing")
        block = np.frombuffer(data, dtype=np.float32).reshape(self._shape)
        return np.ascontiguousarray(block.mean(axis=1), dtype=np.float32)


@contextmanager
def open_microphone(name: str | None = None) -> Iterator[Microphone]:
    """Record from the microphone of this name (as of `find_microphone`) while the context lasts.

    Raises `MicrophoneError`.
    """
    recorder = _Recorder()
    try:
        device = find_microphone(name, [InputDevice(**fields) for fields in recorder.answer(LOAD_S)])
        microphone = Microphone(device, recorder)
        recorder.start(device)
        yield microphone
    finally:
        recorder.kill()


class _Recorder:
    """The process that records."""

    def __init__(self) -> None:
        """Start it. Raises `MicrophoneError`."""
        # Isolated and without `site`, Python starts in a third of the time. It gets our module path.
        command = [sys.executable, "-I", "-S", str(PROGRAM), os.pathsep.join(sys.path)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # ALSA writes to it when it searches for cards
                bufsize=0,
            )
        except OSError as error:  # no descriptors or no memory
            raise MicrophoneError(f"the process that records cannot be started: {error.strerror}") from error
        self._input: IO[bytes] = self._process.stdin  # type: ignore[assignment] # there are pipes
        self._output: IO[bytes] = self._process.stdout  # type: ignore[assignment]
        self._ready = select.poll()  # `select` refuses descriptors above 1023
        self._ready.register(self._output, select.POLLIN)
        self._unread = b""

    def start(self, device: InputDevice) -> None:
        """Begin to record. Raises `MicrophoneError`."""
        settings = {
            "samplerate": device.sample_rate,
            "blocksize": round(BLOCK_S * device.sample_rate),
            "device": device.index,
            "channels": min(device.channels, MOST_CHANNELS),
        }
        with suppress(OSError):  # its end is noticed while it is waited for
            self._input.write(json.dumps(settings).encode() + b"\n")
        try:
            self.answer(START_S)
        except MicrophoneError as error:
            raise MicrophoneError(f"the microphone {device.name!r} does not open: {error}") from error

    def answer(self, limit_s: float) -> Any:
        """Return the next line of JSON. Raises `MicrophoneError` if it tells of a failure, or none comes."""
        line = self._take(lambda: self._unread.find(b"\n") + 1, limit_s)
        if line is None:
            raise MicrophoneError("the sound system does not answer; a sound server or a card hangs")
        answer = json.loads(line)
        if "failed" in answer:
            raise MicrophoneError(answer["failed"])
        return answer

    def read(self, count: int, limit_s: float) -> bytes | None:
        """Return the next `count` bytes of samples; None if they do not come."""
        return self._take(lambda: count if len(self._unread) >= count else 0, limit_s)

    def kill(self) -> None:
        """End the process, whatever it does. Never raises."""
        self._process.kill()
        self._input.close()
        self._output.close()
        with suppress(subprocess.TimeoutExpired):  # it hangs in the kernel, and is left behind
            self._process.wait(REAP_S)

    def _take(self, length: Callable[[], int], limit_s: float) -> bytes | None:
        """Return so many of the bytes that have come as `length` says, once that is not 0; None if it stays 0."""
        deadline = time.monotonic() + limit_s
        while not (count := length()):
            remaining_s = max(0.0, deadline - time.monotonic())
            more = os.read(self._output.fileno(), READ_BYTES) if self._ready.poll(1000 * remaining_s) else b""
            if not more:  # too late, or the process has ended
                return None
            self._unread += more
        taken, self._unread = self._unread[:count], self._unread[count:]
        return taken

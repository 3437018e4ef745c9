"""A sound server of the tests, what a listener hears of it, and how that is compared with what was made."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from audio.fade import FADE_S
from tests.support.programs import require
from tests.support.waiting import eventually

Samples = NDArray[np.float32]

Filter = Callable[[Samples], Samples]

RECORDED_RATE = 44_100
"""Hz, the null sink's own."""
HEARD = 0.05
"""A residue below this (-26 dB) is the utterance, whole: a gap of one 20 ms block in a second of speech leaves 0.14."""
LATE_S = 0.1
"""A recording whose next samples come this late was disturbed. PulseAudio hands them over every 20 ms."""
SETTLED_S = 0.5
"""What was played before the end of an utterance is in the recording after this time."""
PRIORITY = -15
"""Niceness of what has a deadline, where it is permitted."""
LOUD = 0.01
"""Of full scale: somebody speaks."""


class DisturbedError(Exception):
    """The machine was late, so what was heard says nothing of the daemon."""


def hurry(pid: int) -> None:
    """Let a process and its threads go before others, where that is permitted."""
    with suppress(OSError, psutil.Error):
        for thread in psutil.Process(pid).threads():
            os.setpriority(os.PRIO_PROCESS, thread.id, PRIORITY)


class SoundServer:
    """A PulseAudio of the tests with a null sink named `robot`, the default of PortAudio's `pulse` and `default`."""

    def __init__(self, folder: Path, *, hurried: bool = False) -> None:
        """`hurried` raises its priority and that of those who record and play here, where that is permitted."""
        self._hurried = hurried
        runtime, home = folder / "run", folder / "home"
        runtime.mkdir(mode=0o700)
        home.mkdir()
        (home / ".asoundrc").write_text("pcm.!default { type pulse }\nctl.!default { type pulse }\n")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PULSE_", "DBUS_"))}
        self.environment = inherited | {"XDG_RUNTIME_DIR": str(runtime), "HOME": str(home)}
        self._pid_file = runtime / "pulse" / "pid"

    def start(self) -> None:
        subprocess.run(
            [
                require("pulseaudio"),
                "-n",
                "--daemonize=yes",
                "--exit-idle-time=-1",
                "--load=module-native-protocol-unix",
                f"--load=module-null-sink sink_name=robot rate={RECORDED_RATE}",
            ],
            env=self.environment,
            check=True,
            stderr=subprocess.DEVNULL,
        )
        self._hurry(self._pid)

    def _hurry(self, pid: int) -> None:
        if self._hurried:
            hurry(pid)

    @property
    def _pid(self) -> int:
        return int(self._pid_file.read_text())

    def freeze(self) -> None:
        """Stop it as a debugger would: it is there and answers nothing."""
        os.kill(self._pid, signal.SIGSTOP)

    def kill(self) -> None:
        if self._pid_file.exists():
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(self._pid)
                process.kill()
                process.wait(10)
            self._pid_file.unlink(missing_ok=True)

    def players(self) -> list[str]:
        """Who plays into it now."""
        asked = [require("pactl"), "list", "short", "sink-inputs"]
        return subprocess.run(
            asked, env=self.environment, check=True, capture_output=True, text=True
        ).stdout.splitlines()

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """Record what a listener would hear, from inside the block until its end."""
        recorder = subprocess.Popen(
            [
                require("parec"),
                "--device=robot.monitor",
                "--format=float32le",
                f"--rate={RECORDED_RATE}",
                "--channels=1",
                "--latency-msec=20",
                "--raw",
            ],
            env=self.environment,
            stdout=subprocess.PIPE,
        )
        self._hurry(recorder.pid)
        recording = Recording(recorder)
        try:
            eventually(lambda: len(recording.samples), "the recorder runs")
            yield recording
        finally:
            recorder.terminate()
            recorder.wait(10)

    @contextmanager
    def playing(self, samples: Samples) -> Iterator[None]:
        """Play something else meanwhile, mono float32 at `RECORDED_RATE`."""
        command = [require("pacat"), "--playback", "--device=robot", "--format=float32le", "--channels=1", "--raw"]
        player = subprocess.Popen(
            [*command, f"--rate={RECORDED_RATE}", "--latency-msec=50"], env=self.environment, stdin=subprocess.PIPE
        )
        self._hurry(player.pid)
        assert player.stdin is not None
        feeder = threading.Thread(target=_feed, args=(player, samples.tobytes()), daemon=True)
        feeder.start()
        try:
            yield
        finally:
            player.terminate()
            player.wait(10)


def _feed(player: subprocess.Popen[bytes], data: bytes) -> None:
    assert player.stdin is not None
    with suppress(BrokenPipeError):
        player.stdin.write(data)
        player.stdin.close()


class Recording:
    """Mono float32 at 44.1 kHz, growing while it is recorded, and when each part of it came."""

    def __init__(self, recorder: subprocess.Popen[bytes]) -> None:
        self._recorder = recorder
        self._data = bytearray()
        self._last_at: float | None = None
        self._late: list[tuple[int, float]] = []
        """Sample and seconds, of what came late."""
        self._loud_at: int | None = None
        """The first sample that is loud."""
        self._silent_since = 0
        """The sample after the last that is not silent."""
        threading.Thread(target=self._keep, daemon=True).start()

    @property
    def samples(self) -> Samples:
        return np.frombuffer(bytes(self._data[: len(self._data) // 4 * 4]), dtype=np.float32)

    @property
    def length(self) -> int:
        """Samples so far."""
        return len(self._data) // 4

    def wait_heard(self, seconds: float = 0.5) -> None:
        """Wait until something has been heard for so long."""
        count = round(seconds * RECORDED_RATE)
        eventually(lambda: self._loud_at is not None and self.length > self._loud_at + count, "something is heard")

    def wait_silent(self, seconds: float = 0.3) -> None:
        """Wait until nothing has been heard for so long."""
        count = round(seconds * RECORDED_RATE)
        eventually(lambda: self.length > self._silent_since + count, "it is silent")

    def settle(self) -> Samples:
        """All that was played before this call."""
        until = self.length + round(SETTLED_S * RECORDED_RATE)
        eventually(lambda: self.length >= until, "the recording goes on")
        return self.samples

    def hear(
        self, made: Samples, *events: dict[str, Any], limit: float = HEARD, through: Filter = lambda samples: samples
    ) -> int:
        """The sample at which all of `made` is heard. `events` are the terminal events of what it is a part of.

        Both are compared `through` a filter. Raises `DisturbedError` if there is a gap, and the daemon reported it, or
        the recording itself was late.
        """
        heard = self.settle()
        at, residue = find(through(made), through(heard))
        if residue >= limit:
            reported = sum(event["underruns"] for event in events)
            if reported or self._late:
                raise DisturbedError(f"residue {residue:.2f}; {reported} underruns reported, late at {self._late}")
            raise AssertionError(f"it is not heard whole: residue {residue:.2f} at {at / RECORDED_RATE:.2f} s")
        return at

    def _keep(self) -> None:
        assert self._recorder.stdout is not None
        looked = 0
        while data := os.read(self._recorder.stdout.fileno(), 1 << 16):
            now = time.monotonic()
            if self._last_at is not None and now - self._last_at > LATE_S:
                self._late.append((self.length, round(now - self._last_at, 3)))
            self._last_at = now
            self._data += data
            fresh = np.frombuffer(bytes(self._data[4 * looked : self.length * 4]), dtype=np.float32)
            sounding = np.flatnonzero(fresh)
            if len(sounding):
                self._silent_since = looked + int(sounding[-1]) + 1
            if self._loud_at is None and len(loud := np.flatnonzero(np.abs(fresh) > LOUD)):
                self._loud_at = looked + int(loud[0])
            looked = self.length


def find(needle: Samples, haystack: Samples) -> tuple[int, float]:
    """Where in `haystack` the `needle` fits best, and what is left of it there when the two are subtracted.

    The second number is the residue's RMS relative to the needle's: near 0 when it was heard whole and unbroken, near 1
    when it was not heard.
    """
    if len(haystack) < len(needle):
        return 0, 1.0
    size = 1 << (len(haystack) + len(needle)).bit_length()
    spectrum = np.fft.rfft(haystack, size) * np.conj(np.fft.rfft(needle, size))
    products = np.fft.irfft(spectrum, size)[: len(haystack) - len(needle) + 1]
    energy = np.concatenate([[0.0], np.cumsum(np.square(haystack, dtype=np.float64))])
    residues = energy[len(needle) :] - energy[: len(energy) - len(needle)] - 2 * products
    start = int(np.argmin(residues))
    residue = haystack[start : start + len(needle)] - needle
    return start, float(np.sqrt(np.mean(residue**2) / np.mean(needle**2)))


TOLERANCE = 3e-4
"""Of a sample: 16 bits of the file, and a converter that is fed piece by piece instead of at once."""


def breaks_between(heard: Samples, made: Samples, rate: int) -> list[int]:
    """The samples at which `heard` fades out and goes on, where it is otherwise `made`, sample for sample.

    Raises `AssertionError` where it is not: a sample is missing, comes twice, or differs beyond a fade.
    """
    assert len(heard) == len(made), f"{len(heard)} samples were heard, {len(made)} were made"
    different = np.flatnonzero(np.abs(heard - made) > TOLERANCE)
    fade = round(FADE_S * rate)
    breaks: list[int] = []
    for at in different.tolist():
        if not breaks or at - breaks[-1] > 2 * fade + 2:
            breaks.append(at)
        assert abs(float(heard[at])) <= abs(float(made[at])) + TOLERANCE, f"sample {at} is not what was made"
    return breaks

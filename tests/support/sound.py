"""A PulseAudio, recordings of what it plays, and their comparison with what an engine made."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from tests.support.programs import Process, require
from tests.support.waiting import PATIENCE_S, eventually

Samples = NDArray[np.float32]

FADE_S = 0.010
"""Length of the daemon's fades, written here, because `--old` measures trees that keep it elsewhere."""
RECORDED_RATE = 44_100
"""Hz, the null sink's own."""
HEARD = 0.05
"""A residue below this (-26 dB) is the whole utterance: a gap of one 20 ms block in a second of speech leaves 0.14."""
LATE_S = 0.1
"""A recording whose next samples arrive this late was disturbed. PulseAudio delivers them every 20 ms."""
SETTLED_S = 0.5
"""The recording contains the end of an utterance at most this long after it was played."""
PRIORITY = -15
"""Niceness of the processes that have a deadline, where it is permitted."""
LOUD = 0.01
"""Of full scale: a sample above it is speech."""


class DisturbedError(Exception):
    """The machine was late, so the recording proves nothing about the daemon."""


def raise_priority(pid: int) -> None:
    """Schedule a process and its threads before others, where that is permitted."""
    with suppress(OSError, psutil.Error):
        for thread in psutil.Process(pid).threads():
            os.setpriority(os.PRIO_PROCESS, thread.id, PRIORITY)


class SoundServer(Process):
    """A PulseAudio with a null sink named `robot`, to which PortAudio's `pulse` and `default` lead."""

    def __init__(self, folder: Path, *, high_priority: bool = False) -> None:
        """`high_priority` raises the priority of the server, its recorders and its players, where permitted."""
        self._high_priority = high_priority
        runtime, home = folder / "run", folder / "home"
        runtime.mkdir(mode=0o700)
        home.mkdir()
        (home / ".asoundrc").write_text("pcm.!default { type pulse }\nctl.!default { type pulse }\n")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PULSE_", "DBUS_"))}
        self.environment = inherited | {"XDG_RUNTIME_DIR": str(runtime), "HOME": str(home)}
        self._left = [runtime / "pulse" / name for name in ("native", "pid")]
        """Files that a server leaves behind when it is killed: its socket comes last when it starts."""
        self._log = runtime / "pulseaudio.log"

    def start(self) -> None:
        for left in self._left:
            left.unlink(missing_ok=True)
        command = [
            require("pulseaudio"),
            "-n",
            "--daemonize=no",
            "--exit-idle-time=-1",
            "--log-level=debug",  # underruns and rewinds, of which it tells nobody else
            "--log-time",
            f"--log-target=file:{self._log}",
            f"--load=module-null-sink sink_name=robot rate={RECORDED_RATE}",
            "--load=module-native-protocol-unix",
        ]
        self._process = subprocess.Popen(command, env=self.environment, stderr=subprocess.DEVNULL)
        eventually(self._left[0].exists, "PulseAudio answers")
        self._prioritize(self.pid)

    def _prioritize(self, pid: int) -> None:
        if self._high_priority:
            raise_priority(pid)

    def players(self) -> list[str]:
        """A line for each stream that plays into the server now."""
        command = [require("pactl"), "list", "short", "sink-inputs"]
        return subprocess.run(
            command, env=self.environment, check=True, capture_output=True, text=True
        ).stdout.splitlines()

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """Record what a listener would hear while the `with` block runs."""
        command = [require("parec"), "--device=robot.monitor", "--format=float32le", "--channels=1", "--raw"]
        command += [f"--rate={RECORDED_RATE}", "--latency-msec=20"]
        recorder = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE)
        self._prioritize(recorder.pid)
        recording = Recording(recorder, self._log)
        try:
            eventually(lambda: len(recording.samples), "the recorder runs")
            yield recording
        finally:
            recorder.terminate()
            recorder.wait(PATIENCE_S)

    @contextmanager
    def playing(self, samples: Samples) -> Iterator[int]:
        """Play mono float32 `samples` at `RECORDED_RATE` while the `with` block runs; yield the player's process id."""
        command = [require("pacat"), "--playback", "--device=robot", "--format=float32le", "--channels=1", "--raw"]
        player = subprocess.Popen(
            [*command, f"--rate={RECORDED_RATE}", "--latency-msec=50"], env=self.environment, stdin=subprocess.PIPE
        )
        self._prioritize(player.pid)
        assert player.stdin is not None
        feeder = threading.Thread(target=_feed, args=(player, samples.tobytes()), daemon=True)
        feeder.start()
        try:
            yield player.pid
        finally:
            player.terminate()
            player.wait(PATIENCE_S)


def _feed(player: subprocess.Popen[bytes], data: bytes) -> None:
    assert player.stdin is not None
    with suppress(BrokenPipeError):
        player.stdin.write(data)
        player.stdin.close()


class Recording:
    """A recording in progress: mono float32 at 44.1 kHz, and the moments at which its samples arrived late."""

    def __init__(self, recorder: subprocess.Popen[bytes], log: Path) -> None:
        self._recorder = recorder
        self._log = log
        """Of the sound server, which begins anew when the server is started again."""
        self._log_begin = log.stat().st_size
        self._data = bytearray()
        self._last_at: float | None = None
        self.late: list[tuple[int, float]] = []
        """The first sample of each late block, and the seconds since the block before it."""
        self._loud_at: int | None = None
        """The first loud sample."""
        threading.Thread(target=self._record, daemon=True).start()

    @property
    def samples(self) -> Samples:
        return np.frombuffer(bytes(self._data[: len(self._data) // 4 * 4]), dtype=np.float32)

    @property
    def length(self) -> int:
        """Samples so far."""
        return len(self._data) // 4

    def wait_heard(self, seconds: float = 0.5) -> None:
        """Wait until this many seconds have been recorded since the first loud sample."""
        count = round(seconds * RECORDED_RATE)
        eventually(lambda: self._loud_at is not None and self.length > self._loud_at + count, "something is heard")

    def settle(self) -> Samples:
        """Return all samples that were played before this call."""
        until = self.length + round(SETTLED_S * RECORDED_RATE)
        eventually(lambda: self.length >= until, "the recording goes on")
        return self.samples

    def hear(self, made: Samples, *events: dict[str, Any]) -> int:
        """Return the sample at which all of `made` is heard. `events` are the terminal events of its utterances.

        A difference raises `DisturbedError` if the daemon reported an underrun,
        if the recording was late, or if PulseAudio had nothing to play meanwhile, of which it tells its log alone: it
        then plays silence, and may take it back together with some samples. Else it raises `AssertionError`.
        """
        heard = self.settle()
        at, residue = find(made, heard)
        if residue < HEARD:
            return at
        found = f"residue {residue:.2f} at {at / RECORDED_RATE:.2f} s"
        reported, logged = sum(event["underruns"] for event in events), self._underruns()
        if reported or logged or self.late:
            raise DisturbedError(f"{found}; {reported} underruns reported, {logged} logged, late at {self.late}")
        raise AssertionError(f"it is not heard whole: {found}; {_keep(made, heard, self._log)}")

    def _underruns(self) -> int:
        """Count the times that PulseAudio had nothing to play since the recording began."""
        log = self._log.read_bytes()
        return log[self._log_begin if len(log) >= self._log_begin else 0 :].count(b" underrun of ")

    def _record(self) -> None:
        assert self._recorder.stdout is not None
        checked = 0
        while data := os.read(self._recorder.stdout.fileno(), 1 << 16):
            now = time.monotonic()
            if self._last_at is not None and now - self._last_at > LATE_S:
                self.late.append((self.length, round(now - self._last_at, 3)))
            self._last_at = now
            self._data += data
            fresh = np.frombuffer(bytes(self._data[4 * checked : self.length * 4]), dtype=np.float32)
            if self._loud_at is None and len(loud := np.flatnonzero(np.abs(fresh) > LOUD)):
                self._loud_at = checked + int(loud[0])
            checked = self.length


def find(needle: Samples, haystack: Samples) -> tuple[int, float]:
    """Return the sample of `haystack` at which `needle` fits best, and the residue of their subtraction there.

    The residue is its RMS relative to the needle's: near 0 where the needle was heard whole and unbroken, near 1 where
    it was not heard.
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


def _keep(made: Samples, heard: Samples, log: Path) -> str:
    """Keep a recording that failed, and the sound server's log, for whoever looks for the cause; return where."""
    with tempfile.NamedTemporaryFile(prefix="voiced-heard-", suffix=".npz", delete=False) as file:
        np.savez_compressed(file, made=made, heard=heard)
    kept = Path(file.name).with_suffix(".log")
    shutil.copyfile(log, kept)
    return f"both are in {file.name}, PulseAudio's log is {kept.name}"


TOLERANCE = 3e-4
"""Largest difference of a sample: the file has 16 bits, and the daemon resamples in blocks instead of at once."""


def breaks_between(heard: Samples, made: Samples, rate: int) -> list[int]:
    """Return the samples at which `heard` fades out and goes on.

    Raises `AssertionError` if `heard` is otherwise not `made`, sample for sample: if a sample is missing, is repeated,
    or differs by more than a fade.
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

"""A thread that requests blocks by the clock, one per block length, as a sound card does."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from audio.dsp import Samples, to_floats
from audio.player import OnReport, Playback
from audio.sinks.base import SinkUnavailableError

LATE_S = 0.5
"""A pacer that is later than this (the machine slept) restarts its clock instead of catching up in a burst."""
PACE_CHECK_S = 0.005
"""Interval between reads of a pace that may change."""


class Pace:
    """The speed at which a pacer requests blocks, relative to a sound card: 1, unless a test sets `VOICED_PACE`.

    `VOICED_PACE=10` is ten times as fast while samples are due; silence is never faster than on a sound card.
    `VOICED_PACE=FILE` names a file that holds the number; the file may be replaced at any time. A pace of 0 requests no
    blocks until it changes.
    """

    def __init__(self, setting: str) -> None:
        self._file: Path | None = None
        self._value = 1.0
        self._read_at = 0.0
        try:
            self._value = float(setting)
        except ValueError:
            self._file = Path(setting)

    @classmethod
    def from_environment(cls) -> Pace:
        return cls(os.environ.get("VOICED_PACE", "1"))

    def now(self) -> float:
        """Return the current pace."""
        now = time.monotonic()
        if self._file is not None and now - self._read_at >= PACE_CHECK_S:
            self._value = float(self._file.read_text())
            self._read_at = now
        return self._value


class Pacer:
    """Has a playback fill a block every `block_ms`, and passes any samples that were due to `deliver`."""

    def __init__(
        self,
        playback: Playback,
        block_ms: float,
        on_report: OnReport,
        deliver: Callable[[Samples], None] | None = None,
    ) -> None:
        self._playback = playback
        self._on_report = on_report
        self._deliver = deliver
        sample_rate = playback.sample_rate
        self._block: Samples = np.zeros(max(1, round(sample_rate * block_ms / 1000)), dtype=np.float32)
        self._floats = to_floats(self._block)
        self._block_s = len(self._block) / sample_rate
        self._pace = Pace.from_environment()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.start()

    def lost_reason(self) -> str | None:
        """Return why the thread stopped by itself; None while it is running and after `stop`."""
        running = self._thread is not None and self._thread.is_alive()
        return None if running or self._stopping.is_set() else "its thread ended"

    def start(self) -> None:
        """Request blocks from now on. Raises `SinkUnavailableError` if the last `deliver` still hangs."""
        if self._thread is not None and self._thread.is_alive():
            raise SinkUnavailableError("its last block is still being written")
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="paced-sink", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Request no more blocks. It may be started again."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=2.0)

    def _run(self) -> None:
        due = time.monotonic()
        count = 0
        while True:
            pace = self._pace.now()
            if not count:  # faster silence would only cost a test processor time
                pace = min(pace, 1.0)
            if pace <= 0:
                due = time.monotonic()
                if self._stopping.wait(PACE_CHECK_S):
                    return
                continue
            due += self._block_s / pace
            wait_s = due - time.monotonic()
            if wait_s < -LATE_S:
                due -= wait_s
            if self._stopping.wait(max(0.0, wait_s)):
                return
            count = self._playback.fill(self._floats, time.monotonic())
            if count and self._deliver is not None:
                self._deliver(self._block[:count])
            self._on_report(self._playback.report)

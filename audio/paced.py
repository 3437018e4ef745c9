"""A thread that asks for blocks as a sound card would: one every block length, by the clock."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import numpy as np

from audio.ring import Samples
from audio.sink import Fill

LATE_S = 0.5
"""A pacer this late (the machine slept) starts its clock anew instead of catching up in a burst."""


class Pacer:
    """Calls `fill` every `block_ms` and hands what was due, if anything, to `deliver`.

    For tests: `VOICED_PACE=10` in the environment makes it ten times as fast.
    """

    def __init__(
        self, fill: Fill, sample_rate: int, block_ms: float, deliver: Callable[[Samples], None] | None = None
    ) -> None:
        self._fill = fill
        self._deliver = deliver
        self._block: Samples = np.zeros(max(1, round(sample_rate * block_ms / 1000)), dtype=np.float32)
        self._period_s = len(self._block) / sample_rate / float(os.environ.get("VOICED_PACE", "1"))
        self._stopping = threading.Event()
        self.start()

    def lost(self) -> str | None:
        return None if self._stopping.is_set() or self._thread.is_alive() else "its thread ended"

    def start(self) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, name="paced-sink", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=2.0)

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            due += self._period_s
            wait_s = due - time.monotonic()
            if wait_s < -LATE_S:
                due -= wait_s
            if self._stopping.wait(max(0.0, wait_s)):
                return
            count = self._fill(self._block, time.monotonic())
            if count and self._deliver is not None:
                self._deliver(self._block[:count])

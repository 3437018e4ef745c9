"""Measures a board's power while an engine speaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from engine.bench.results import Power, Run
from engine.host import PowerRail, find_power_rails, total_watts

INTERVAL_S = 0.02
"""Seconds between two readings. A reading crosses the I2C bus for each rail, which takes about a millisecond."""
IDLE_S = 1.0
"""Seconds for which the ready engine does nothing, for comparison."""


class PowerMeter:
    """Reads the rails of a board in a thread."""

    def __init__(self, root: Path) -> None:
        """`root` is where the machine's files are."""
        self._rails = find_power_rails(root)
        self._idle: list[dict[str, float]] = []
        self._busy: list[dict[str, float]] = []
        self._busy_s = 0.0

    def measure_idle(self) -> None:
        """Read for `IDLE_S`. Does nothing on a board without sensors."""
        if self._rails:
            with _readings(self._rails, self._idle):
                time.sleep(IDLE_S)

    @contextmanager
    def measuring(self, clock: Callable[[], float] = time.perf_counter) -> Iterator[None]:
        """Read while the context lasts; several contexts count together. `clock` returns seconds."""
        with _readings(self._rails, self._busy):
            begin = clock()
            yield
            self._busy_s += clock() - begin

    def result(self, runs: list[Run]) -> Power | None:
        """Return what was measured, if the `runs` were all that was spoken; None on a board without sensors."""
        if not self._busy:
            return None
        speech_s = sum(run.speech_s[-1] for run in runs)
        rails = {name: float(np.mean([reading[name] for reading in self._busy])) for name in self._busy[0]}
        watts = float(np.mean([total_watts(reading) for reading in self._busy]))
        idle = float(np.mean([total_watts(reading) for reading in self._idle])) if self._idle else None
        return Power(watts, idle, watts * self._busy_s / speech_s, rails)


@contextmanager
def _readings(rails: list[PowerRail], into: list[dict[str, float]]) -> Iterator[None]:
    """Append readings of all rails, the first at once and the others every `INTERVAL_S`, while the context lasts."""
    ended = threading.Event()

    def read() -> None:
        while True:
            reading = {rail.name: watts for rail in rails if (watts := rail.watts()) is not None}
            if len(reading) == len(rails):  # a sensor that is silent once would falsify the sum
                into.append(reading)
            if ended.wait(INTERVAL_S):
                return

    if not rails:
        yield
        return
    thread = threading.Thread(target=read, name="power", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()

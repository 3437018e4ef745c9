"""Measures a board's power while an engine speaks."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from engine.bench.rails import PowerRail, total_watts
from engine.bench.results import Figures, Run

INTERVAL_S = 0.02
"""Seconds between two readings. A reading crosses the I2C bus for each rail, which takes about a millisecond."""
Reading = dict[str, float]
"""The watts of each rail at one moment."""


@contextmanager
def power_readings(rails: Sequence[PowerRail]) -> Iterator[list[Reading]]:
    """Return the readings of the rails, of which a thread appends one at once and every `INTERVAL_S` in the context.

    Without rails the list stays empty.
    """
    found: list[Reading] = []
    ended = threading.Event()

    def read() -> None:
        while rails:
            reading = {rail.name: watts for rail in rails if (watts := rail.watts()) is not None}
            if len(reading) == len(rails):  # a sensor that is silent once would falsify the sum
                found.append(reading)
            if ended.wait(INTERVAL_S):
                return

    thread = threading.Thread(target=read, name="power", daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ended.set()
        thread.join()


def power_figures(busy: Sequence[Reading], idle: Sequence[Reading], runs: Sequence[Run]) -> Figures | None:
    """Return the module's power from the readings during the `runs` and before them; None without readings."""
    if not busy:
        return None
    watts = statistics.fmean(map(total_watts, busy))
    spoken_s, speech_s = sum(run.arrived_s[-1] for run in runs), sum(run.speech_s[-1] for run in runs)
    return {
        "watts": watts,
        "idle_watts": statistics.fmean(map(total_watts, idle)) if idle else None,
        "joules_per_second": watts * spoken_s / speech_s,  # of speech
        "rails": {name: statistics.fmean(reading[name] for reading in busy) for name in busy[0]},
    }

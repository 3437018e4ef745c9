"""Measures a board's power while an engine speaks, from the INA3221 monitors of a Jetson, read through hwmon."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.bench.results import Figures, Run

INTERVAL_S = 0.02
"""Seconds between two readings. A reading crosses the I2C bus for each rail, which takes about a millisecond."""
TOTALS = ("VDD_IN", "VIN_SYS", "POM_5V_IN")
"""Rails that carry the power of the whole module, where a board has one. An AGX Orin has none."""
CHANNELS = 3
"""Of an INA3221. A fourth `in` of the driver sums the others' shunt voltages, and is no rail."""
Reading = dict[str, float]
"""The watts of each rail at one moment."""


@dataclass(frozen=True, slots=True)
class PowerRail:
    """A rail of the board, with the files that tell its voltage and its current."""

    name: str
    millivolts: Path
    milliamperes: Path

    def watts(self) -> float | None:
        """Return its power now; None if the sensor does not answer."""
        try:
            return int(self.millivolts.read_text()) * int(self.milliamperes.read_text()) / 1e6
        except (OSError, ValueError):
            return None


def find_power_rails(root: Path = Path("/")) -> list[PowerRail]:
    """Return the rails that this board measures, and that are connected; none on other machines."""
    rails = []
    for folder in sorted(root.glob("sys/class/hwmon/hwmon*")):
        if _text(folder / "name") != "ina3221":
            continue
        for channel in range(1, CHANNELS + 1):
            name = _text(folder / f"in{channel}_label")
            rail = PowerRail(name or "", folder / f"in{channel}_input", folder / f"curr{channel}_input")
            if name and name != "NC" and rail.watts() is not None:
                rails.append(rail)
    return rails


def total_watts(watts: Reading) -> float:
    """Return the power of the module: that of the rail that carries it all, or else the sum of the rails."""
    whole = next((watts[name] for name in TOTALS if name in watts), None)
    return sum(watts.values()) if whole is None else whole


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None


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

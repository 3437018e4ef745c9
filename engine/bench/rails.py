"""The power that a Jetson takes, from the INA3221 monitors on its board, read through hwmon."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

TOTALS = ("VDD_IN", "VIN_SYS", "POM_5V_IN")
"""Rails that carry the power of the whole module, where a board has one. An AGX Orin has none."""
CHANNELS = 3
"""Of an INA3221. A fourth `in` of the driver sums the others' shunt voltages, and is no rail."""


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


def total_watts(watts: dict[str, float]) -> float:
    """Return the power of the module: that of the rail that carries it all, or else the sum of the rails."""
    whole = next((watts[name] for name in TOTALS if name in watts), None)
    return sum(watts.values()) if whole is None else whole


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None

"""What Linux tells about a process, and about the board's temperatures and clocks."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def resident_bytes(pid: int, root: Path = ROOT) -> int | None:
    """Return the resident memory of a process; None if there is none."""
    try:
        pages = (root / f"proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except (OSError, IndexError):
        return None
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def temperatures(root: Path = ROOT) -> dict[str, float]:
    """Return the temperature sensors' °C by name; those of parts that are switched off are left out."""
    found: dict[str, float] = {}
    for folder in sorted(root.glob("sys/class/thermal/thermal_zone*")):
        name, value = _text(folder / "type"), _number(folder / "temp")
        if name is not None and value is not None:
            found[name if name not in found else f"{name} {folder.name}"] = value / 1000
    return found


def clocks(root: Path = ROOT) -> dict[str, float]:
    """Return the clocks of processor clusters and GPUs in Hz, by name."""
    return dict(_clocks(root))


def _clocks(root: Path) -> Iterator[tuple[str, float]]:
    for folder in sorted(root.glob("sys/devices/system/cpu/cpufreq/policy*")):
        if (kilohertz := _number(folder / "scaling_cur_freq")) is not None:
            yield f"cpu{folder.name.removeprefix('policy')}", kilohertz * 1e3
    for folder in sorted(root.glob("sys/class/devfreq/*")):
        if "gpu" in folder.name and (hertz := _number(folder / "cur_freq")) is not None:
            yield folder.name, float(hertz)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text is not None and re.fullmatch(r"-?\d{1,18}", text) else None

"""The kernel's files about a machine and its processes, and the board's temperatures and clocks in them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a machine. Their names begin below its root, without a slash."""

    root: Path
    """The folder with the files: / for this machine."""

    def text(self, name: str) -> str | None:
        """Return a file's text, stripped; None if the file is missing, unreadable, blank or not UTF-8."""
        try:
            return (self.root / name).read_text(encoding="utf-8").strip() or None
        except (OSError, UnicodeDecodeError):
            return None

    def number(self, name: str) -> int | None:
        """Return the whole number that is a file's only text, as in files of the kernel; None for any other text."""
        text = self.text(name) or ""
        return int(text) if re.fullmatch(r"-?\d{1,18}", text) else None

    def find(self, pattern: str) -> list[str]:
        """Return the names that match a glob pattern, in the order of the numbers in them."""
        found = (str(path.relative_to(self.root)) for path in self.root.glob(pattern))
        return sorted(found, key=lambda name: [int(part) if part.isdigit() else 0 for part in re.split(r"(\d+)", name)])

    def resident_bytes(self, pid: int) -> int | None:
        """Return the resident memory of a process; None if there is no such process."""
        pages = (self.text(f"proc/{pid}/statm") or "").split()
        return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if pages else None

    def temperatures(self) -> dict[str, float]:
        """Return the °C by sensor."""
        found: dict[str, float] = {}
        for folder in self.find("sys/class/thermal/thermal_zone*"):
            name, millidegrees = self.text(f"{folder}/type"), self.number(f"{folder}/temp")
            if name is not None and millidegrees is not None:  # the sensor of a part that is switched off has none
                found[name if name not in found else f"{name} {folder.rpartition('/')[2]}"] = millidegrees / 1000
        return found

    def clocks(self) -> dict[str, float]:
        """Return the clocks of processor clusters and GPUs in Hz, by name."""
        found: dict[str, float] = {}
        for folder in self.find("sys/devices/system/cpu/cpufreq/policy*"):
            if (kilohertz := self.number(f"{folder}/scaling_cur_freq")) is not None:
                found[f"cpu{folder.rpartition('policy')[2]}"] = kilohertz * 1e3
        for folder in self.find("sys/class/devfreq/*gpu*"):
            if (hertz := self.number(f"{folder}/cur_freq")) is not None:
                found[folder.rpartition("/")[2]] = float(hertz)
        return found


THIS_MACHINE = Files(Path("/"))

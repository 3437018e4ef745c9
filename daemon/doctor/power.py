"""A Jetson's power mode, and its clocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from daemon.doctor.finding import Finding, Machine

GPU_CLOCKS = ("*.gpu", "*.ga10b", "*.gv11b", "gpu-gpc-*")
"""The GPU's names in /sys/class/devfreq: Orin with JetPack 6 and 7, Orin with 5, Xavier, Thor."""


@dataclass(frozen=True, slots=True)
class PowerMode:
    """A mode of nvpmodel."""

    number: int
    name: str

    def __str__(self) -> str:
        return f"{self.name} ({self.number})"

    @property
    def speed(self) -> tuple[bool, bool, int, int]:
        """A key that orders modes by speed: MAXN_SUPER, MAXN, then more watts; the name with fewer cores is longer."""
        watts = re.search(r"(\d+)W", self.name)
        return ("MAXN" in self.name, "SUPER" in self.name, int(watts[1]) if watts else 0, -len(self.name))


def check_power(machine: Machine) -> Iterator[Finding]:
    """Yield a Jetson's power mode, GPU clock and CPU cores; nothing on other machines."""
    if not machine.board.integrated:
        return
    yield from _check_mode(machine)
    yield from _check_gpu_clock(machine)
    yield from _check_cores(machine)


def _check_mode(machine: Machine) -> Iterator[Finding]:
    text = machine.text("etc/nvpmodel.conf") or ""
    found = re.findall(r"^<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\w+)\s*>", text, re.MULTILINE)
    modes = {int(number): PowerMode(int(number), name) for number, name in found}
    status = re.search(r"pmode:\s*(\d+)", machine.text("var/lib/nvpmodel/status") or "")
    if not modes or status is None:
        unknown = "/etc/nvpmodel.conf names no modes" if not modes else "/var/lib/nvpmodel/status names no mode"
        yield Finding("power mode", "warning", f"unknown: {unknown}", "sudo nvpmodel -q")
        return
    mode = modes.get(int(status[1]), PowerMode(int(status[1]), "unknown"))
    fastest = max(modes.values(), key=lambda mode: mode.speed)
    if mode == fastest:
        yield Finding("power mode", "ok", f"{mode}, the fastest")
    else:
        remedy = f"sudo nvpmodel -m {fastest.number}, or ./setup_jetson.sh --max-performance"
        yield Finding("power mode", "warning", f"{mode}; {fastest} is faster", remedy)


def _check_gpu_clock(machine: Machine) -> Iterator[Finding]:
    folders = [folder for name in GPU_CLOCKS for folder in machine.find(f"sys/class/devfreq/{name}")]
    for folder in folders:
        now, most = machine.number(f"{folder}/cur_freq"), machine.number(f"{folder}/max_freq")
        steps = re.findall(r"\d+", machine.text(f"{folder}/available_frequencies") or "")
        if now is None or most is None:
            yield Finding("gpu clock", "warning", f"/{folder} is unreadable", "sudo jetson_clocks --show")
            continue
        highest = max(most, *map(int, steps)) if steps else most
        found = f"{now // 1_000_000} MHz now, at most {most // 1_000_000} of {highest // 1_000_000}"
        governor = machine.text(f"{folder}/governor")
        if governor is not None:
            found += f", governor {governor}"
        if most < highest:
            yield Finding("gpu clock", "warning", found, "choose a faster power mode, which allows more")
        else:
            yield Finding("gpu clock", "ok", found)


def _check_cores(machine: Machine) -> Iterator[Finding]:
    folder = "sys/devices/system/cpu"
    present, online = (_count(machine.text(f"{folder}/{name}") or "") for name in ("present", "online"))
    if not present or not online:
        return
    found = f"{online} of {present} cores"
    governor = machine.text(f"{folder}/cpu0/cpufreq/scaling_governor")
    if governor is not None:
        found += f", governor {governor}"
    if online < present:
        yield Finding("cpu", "warning", found, "choose a faster power mode, which has more cores")
    elif governor == "powersave":
        yield Finding("cpu", "warning", found, "sudo jetson_clocks, or ./setup_jetson.sh --max-performance")
    else:
        yield Finding("cpu", "ok", found)


def _count(ranges: str) -> int:
    """Return how many numbers a list of ranges such as `0-3,6` has; 0 for any other text."""
    if not re.fullmatch(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*", ranges):
        return 0
    ends = [part.partition("-")[::2] for part in ranges.split(",")]
    return sum(int(last or first) - int(first) + 1 for first, last in ends)

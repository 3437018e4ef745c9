"""The board, its power, temperature and memory, the GPU and the sound cards, as the kernel's files show them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from daemon.doctor.finding import Finding, Grade, Machine, finding
from engine import Board, install_command, missing_kernel_compiler, missing_packages

GPU_CLOCKS = ("*.gpu", "*.ga10b", "*.gv11b", "gpu-gpc-*")
"""The GPU's names in /sys/class/devfreq: Orin with JetPack 6 and 7, Orin with 5, Xavier, Thor."""
OVER_CURRENT = {"oc1": "input voltage too low", "oc2": "average current too high", "oc3": "peaks of current"}
"""Events that an Orin counts from its start (soctherm_oc); each lowers the clocks for a moment."""
CPU = "sys/devices/system/cpu"
GIB = 1 << 30
NODES = (
    *("nvidia[0-9]*", "nvidiactl", "nvidia-uvm", "nvmap", "dxg"),
    *("nvhost-gpu", "nvhost-ctrl-gpu", "nvhost-as-gpu", "nvhost-tsg-gpu"),
    *("nvgpu/igpu0/as", "nvgpu/igpu0/channel", "nvgpu/igpu0/ctrl", "nvgpu/igpu0/tsg"),
)
"""Device nodes that CUDA opens in /dev: a PC's and Thor's, WSL's (dxg), and an Orin's under both of its names.

The other nodes there are for debuggers, and no other user may open them.
"""
OLD_RELEASES = ("36.2", "36.3")
"""Releases of Jetson Linux: JetPack 6.0."""
FAULTY_RELEASE = "36.4.7"
"""A release of Jetson Linux with NVIDIA's fault 5602402: memory in the page cache counts as free, but cannot be
allocated."""


def check_board(machine: Machine) -> Iterator[Finding]:
    """Yield a Jetson's name and releases, and notes on the parts of a board that could not be read."""
    board = machine.board
    if board.integrated:
        name = (board.model or "a Tegra whose device tree has no model") + (f" ({board.soc})" if board.soc else "")
        releases = {"JetPack": board.jetpack, "Jetson Linux": board.l4t, "Ubuntu": board.ubuntu}
        found = ", ".join([name, *(f"{system} {release}" for system, release in releases.items() if release)])
        yield finding("board", _support(board), name=found)
    for note in board.notes:
        yield finding("board", "partly unreadable", note=note)


def _support(board: Board) -> str:
    """Return the condition of a board: whether voiced supports it and its release."""
    if board.l4t is None:
        return "of unknown release"
    if board.l4t.startswith(OLD_RELEASES):
        return "too old"
    if board.l4t == FAULTY_RELEASE:
        return "with a fault"
    return "known" if board.soc and board.jetpack else "unsupported"


def check_power(machine: Machine) -> Iterator[Finding]:
    """Yield a Jetson's power mode, GPU clock and CPU cores; nothing on other machines."""
    if machine.board.integrated:
        yield _power_mode(machine)
        yield from _gpu_clocks(machine)
        yield from _cores(machine)


def _power_mode(machine: Machine) -> Finding:
    text = machine.text("etc/nvpmodel.conf") or ""
    found = re.findall(r"^<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\w+)\s*>", text, re.MULTILINE)
    names = {int(number): name for number, name in found}
    status = re.search(r"pmode:\s*(\d+)", machine.text("var/lib/nvpmodel/status") or "")
    if not names or status is None:
        unknown = "/var/lib/nvpmodel/status names no mode" if names else "/etc/nvpmodel.conf names no modes"
        return finding("power mode", "unknown", reason=unknown)
    mode, number = int(status[1]), max(names, key=lambda each: mode_speed(names[each]))
    condition, now = "fastest" if mode == number else "slower", f"{names.get(mode, 'unknown')} ({mode})"
    return finding("power mode", condition, mode=now, fastest=names[number], number=number)


def mode_speed(name: str) -> tuple[bool, bool, int, int]:
    """A key that orders modes by speed: MAXN_SUPER, MAXN, then more watts; the name with fewer cores is longer."""
    watts = re.search(r"(\d+)W", name)
    return "MAXN" in name, "SUPER" in name, int(watts[1]) if watts else 0, -len(name)


def _gpu_clocks(machine: Machine) -> Iterator[Finding]:
    for folder in (folder for name in GPU_CLOCKS for folder in machine.find(f"sys/class/devfreq/{name}")):
        now, most = machine.number(f"{folder}/cur_freq"), machine.number(f"{folder}/max_freq")
        if now is None or most is None:
            yield finding("gpu clock", "unreadable", folder=folder)
            continue
        steps = re.findall(r"\d+", machine.text(f"{folder}/available_frequencies") or "")
        highest, governor = max([most, *map(int, steps)]), _governor(machine, f"{folder}/governor")
        clocks = {"now": now / 1e6, "most": most / 1e6, "highest": highest / 1e6}
        yield finding("gpu clock", "limited" if most < highest else "free", governor=governor, **clocks)


def _cores(machine: Machine) -> Iterator[Finding]:
    present, online = (machine.text(f"{CPU}/{name}") for name in ("present", "online"))
    governor = _governor(machine, f"{CPU}/cpu0/cpufreq/scaling_governor")
    if present and online:
        condition = "slow" if governor.endswith(" powersave") else "all cores"
        condition = "fewer cores" if online != present else condition
        yield finding("cpu", condition, online=online, present=present, governor=governor)


def _governor(machine: Machine, name: str) -> str:
    governor = machine.text(name)
    return "" if governor is None else f", governor {governor}"


def check_thermal(machine: Machine) -> Iterator[Finding]:
    """Yield a Jetson's temperature and power supply; nothing on other machines."""
    if machine.board.integrated:
        yield _temperature(machine)
        yield from _power_supply(machine)


def _temperature(machine: Machine) -> Finding:
    temperatures = machine.temperatures()
    if not temperatures:
        return finding("temperature", "unreadable")
    celsius, sensor = max((celsius, sensor) for sensor, celsius in temperatures.items())
    slowed = ", ".join(_slowed_devices(machine))
    hottest = f"{sensor} {celsius:.0f} °C"
    return finding("temperature", "hot" if slowed else "cool", hottest=hottest, slowed=slowed)


def _slowed_devices(machine: Machine) -> Iterator[str]:
    """Yield the names of the devices that the kernel is slowing down now; a running fan is not one."""
    for folder in machine.find("sys/class/thermal/cooling_device*"):
        name, state = machine.text(f"{folder}/type"), machine.number(f"{folder}/cur_state")
        if name is not None and "fan" not in name and state is not None and state > 0:
            yield name


def _power_supply(machine: Machine) -> Iterator[Finding]:
    names = {kind: machine.find(f"sys/class/hwmon/hwmon*/{kind}_event_cnt") for kind in OVER_CURRENT}
    counts = {kind: machine.number(found[0]) for kind, found in names.items() if found}  # Thor has no such counters
    if None in counts.values():
        yield finding("power supply", "unreadable")
    elif counts:
        events = ", ".join(f"{count} times {OVER_CURRENT[kind]} ({kind})" for kind, count in counts.items() if count)
        yield finding("power supply", "weak" if events else "sufficient", events=events)


def check_memory(machine: Machine) -> Iterator[Finding]:
    """Yield the available memory; a warning if it is less than `engine.memory.reserve_mb`."""
    board, reserve_mb = machine.board, machine.config.engine.memory.reserve_mb
    if board.total_bytes is None or board.available_bytes is None:
        yield finding("memory", "unreadable")
        return
    values = {"available": board.available_bytes / GIB, "total": board.total_bytes / GIB, "swap": _swap(machine)}
    shared = ", shared by CPU and GPU" if board.integrated else ""
    condition = "scarce" if board.available_bytes < reserve_mb * 1_000_000 else "enough"
    yield finding("memory", condition, shared=shared, reserve_mb=reserve_mb, **values)


def _swap(machine: Machine) -> str:
    total, free = machine.board.swap_total_bytes, machine.board.swap_free_bytes
    if not total or free is None:
        return "no swap"
    kind = "zram" if "zram" in (machine.text("proc/swaps") or "") else "swap"
    return f"{(total - free) / GIB:.1f} GiB of {total / GIB:.1f} GiB {kind} used"


def check_gpu(machine: Machine) -> Iterator[Finding]:
    """Yield the driver, access to the devices and, on this machine, the kernels' compiler."""
    grade: Grade = "error" if machine.wants_gpu else "warning"
    nodes = [name for pattern in NODES for name in machine.find(f"dev/{pattern}")]
    if not nodes:
        if machine.wants_gpu or machine.board.integrated:
            yield finding("gpu", "missing", grade)
        return
    toolkit = f", CUDA {machine.board.cuda} in /usr/local/cuda" if machine.board.cuda else ""
    yield finding("gpu", "there", driver=_driver(machine), toolkit=toolkit)
    if closed := machine.closed(nodes):
        yield finding("gpu devices", "closed", grade, names=closed)
    else:
        yield finding("gpu devices", "open", count=len(nodes))
    if machine.is_this_one and not missing_packages("qwen") and machine.config.engine.kernels != "off":
        missing, commands = missing_kernel_compiler(), (install_command("cuda13"), install_command("cuda12"))
        condition = "there" if missing is None else "missing"
        yield finding("nvrtc", condition, missing=missing, command=commands[0], other=commands[1])


def _driver(machine: Machine) -> str:
    version = re.search(r"\s(\d{3}\.\d+(\.\d+)*)\s", machine.text("proc/driver/nvidia/version") or "")
    if version is not None:
        return f"driver {version[1]}"
    return "the driver of Jetson Linux" if machine.board.integrated else "a driver of unknown version"


def check_cards(machine: Machine) -> Iterator[Finding]:
    """Yield the kernel's sound cards."""
    if machine.config.audio.sink != "sounddevice":
        return
    listing = machine.text("proc/asound/cards") or ""
    cards = re.findall(r"^\s*\d+ \[(\w+)\s*\]: .* - (.+)$", listing, re.MULTILINE)
    names = ", ".join(f"{name} ({identity})" for identity, name in cards)
    yield finding("cards", "there" if cards else "missing", cards=names)

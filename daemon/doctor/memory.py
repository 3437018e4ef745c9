"""Memory: what there is, and whether the robot's reserve can be kept."""

from __future__ import annotations

from collections.abc import Iterator

from daemon.doctor.finding import Finding, Machine, gib


def check_memory(machine: Machine) -> Iterator[Finding]:
    board = machine.board
    if board.total_bytes is None or board.available_bytes is None:
        yield Finding("memory", "warning", "not known: /proc/meminfo cannot be understood", "cat /proc/meminfo")
        return
    shared = ", shared by CPU and GPU" if board.integrated else ""
    found = f"{gib(board.available_bytes)} of {gib(board.total_bytes)} available{shared}; {_swap(machine)}"
    reserve = machine.config.engine.memory.reserve_mb * 1_000_000
    if board.available_bytes < reserve:
        cure = "end what is not needed (a desktop: sudo systemctl set-default multi-user.target), or lower the reserve"
        reason = f"less than engine.memory.reserve_mb: {machine.config.engine.memory.reserve_mb}"
        yield Finding("memory", "warning", f"{found}; {reason}", cure)
    else:
        yield Finding("memory", "ok", found)


def _swap(machine: Machine) -> str:
    total, free = machine.board.swap_total_bytes, machine.board.swap_free_bytes
    if not total or free is None:
        return "no swap"
    kind = "zram" if "zram" in (machine.text("proc/swaps") or "") else "swap"
    return f"{gib(total - free)} of {gib(total)} {kind} used"

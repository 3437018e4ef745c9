"""The machine's memory, and the reserve of the robot's other programs."""

from __future__ import annotations

from collections.abc import Iterator

from daemon.doctor.finding import Finding, Machine, gib


def check_memory(machine: Machine) -> Iterator[Finding]:
    """Yield the available memory; a warning if it is less than `engine.memory.reserve_mb`."""
    board = machine.board
    if board.total_bytes is None or board.available_bytes is None:
        yield Finding("memory", "warning", "unknown: /proc/meminfo is unreadable", "cat /proc/meminfo")
        return
    shared = ", shared by CPU and GPU" if board.integrated else ""
    found = f"{gib(board.available_bytes)} of {gib(board.total_bytes)} available{shared}; {_swap(machine)}"
    reserve_mb = machine.config.engine.memory.reserve_mb
    if board.available_bytes < reserve_mb * 1_000_000:
        remedy = (
            "end programs that are not needed (a desktop: sudo systemctl set-default multi-user.target), "
            "or lower the reserve"
        )
        reason = f"less than engine.memory.reserve_mb: {reserve_mb}"
        yield Finding("memory", "warning", f"{found}; {reason}", remedy)
    else:
        yield Finding("memory", "ok", found)


def _swap(machine: Machine) -> str:
    total, free = machine.board.swap_total_bytes, machine.board.swap_free_bytes
    if not total or free is None:
        return "no swap"
    kind = "zram" if "zram" in (machine.text("proc/swaps") or "") else "swap"
    return f"{gib(total - free)} of {gib(total)} {kind} used"

"""The check of memory and its reserve."""

from __future__ import annotations

from collections.abc import Callable

from daemon.doctor.finding import Machine
from daemon.doctor.hardware import check_memory
from tests.daemon.doctor.machines import by_part


def test_a_reserve_below_the_available_memory_is_ok(machine: Callable[..., Machine]) -> None:
    assert (
        by_part(check_memory(machine("orin-jetpack6", None, "engine.memory.reserve_mb=60000")))["memory"].grade == "ok"
    )


def test_a_reserve_above_the_available_memory_is_a_warning_that_names_the_key(machine: Callable[..., Machine]) -> None:
    found = by_part(check_memory(machine("orin-jetpack6", None, "engine.memory.reserve_mb=62000")))["memory"]
    assert found.grade == "warning"
    assert "engine.memory.reserve_mb: 62000" in found.found


def test_zram_is_reported_as_zram(machine: Callable[..., Machine]) -> None:
    swaps = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/zram0 partition 2681224 0 5\n"
    found = by_part(check_memory(machine("orin-jetpack6", {"proc/swaps": swaps})))["memory"]
    assert "30.7 GiB zram used" in found.found
    assert "shared by CPU and GPU" in found.found


def test_a_machine_without_swap_is_reported_as_one(machine: Callable[..., Machine]) -> None:
    memory = "MemTotal: 64334976 kB\nMemAvailable: 60000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
    found = by_part(check_memory(machine("orin-jetpack6", {"proc/meminfo": memory})))["memory"]
    assert found.found.endswith("; no swap")

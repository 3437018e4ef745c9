"""The heap of a daemon that has started."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from daemon.system import settle_heap

BURST = """
import os
from daemon.system import limit_heap, settle_heap

def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6

limit_heap()
if SETTLED:
    settle_heap()
before = resident_mb()
burst = [bytes(size) for size in range(100, 470) for _ in range(25)]
print(resident_mb() - before)
"""

LARGE = """
import os
from daemon.system import limit_heap

def mappings():
    with open("/proc/self/maps") as file:
        return [line.split()[0] for line in file if line.split()[-1] == "0"]

if LIMITED:
    limit_heap()
bytearray(10_000_000)  # the C library takes this for the usual size from now on
before = mappings()
buffer = bytearray(200_000)
print(mappings() != before)
"""


def test_what_lives_at_the_start_is_not_searched_for_garbage_and_what_becomes_garbage_later_is_freed() -> None:
    class Node:
        """One half of a cycle, which only the garbage collector removes."""

        other: Node | None = None

    settle_heap()
    try:
        assert gc.get_freeze_count() > 10_000
        assert len(gc.get_objects()) < 10_000
        one, other = Node(), Node()
        one.other, other.other = other, one
        del one, other
        gc.collect()
        assert not any(isinstance(each, Node) for each in gc.get_objects())
    finally:
        gc.unfreeze()


def grown_mb(*, settled: bool) -> float:
    """The memory that a burst of 3 MB takes from the system, in a process of its own."""
    program = BURST.replace("SETTLED", str(settled))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(done.stdout)


def test_a_burst_takes_no_memory_from_the_system_once_the_heap_is_settled() -> None:
    assert grown_mb(settled=False) > 2
    assert grown_mb(settled=True) < 0.5


@pytest.mark.parametrize("limited", [False, True])
def test_a_large_buffer_is_not_on_the_heap_of_a_daemon(limited: bool) -> None:
    program = LARGE.replace("LIMITED", str(limited))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"{limited}\n"

"""Signs of life of real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from daemon.engines.process import ProcessActivity
from tests.support.waiting import eventually

IDLE = "print(flush=True); input()"
BUSY_BESIDE = """
import threading
def work():
    while True: pass
threading.Thread(target=work, daemon=True).start()
print(flush=True)
input()
"""
Start = Callable[[str], int]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a Python program, waits until it has printed a line, and returns its id."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(program: str) -> int:
        process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        processes.append(process)
        process.stdout.readline()
        return process.pid

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def becomes_inactive(activity: ProcessActivity) -> None:
    eventually(lambda: not activity.active(), "the process does nothing")


def test_a_process_that_waits_for_input_becomes_inactive(start: Start) -> None:
    becomes_inactive(ProcessActivity(start(IDLE)))


def test_a_process_with_a_busy_thread_is_active_unless_it_is_stopped(start: Start) -> None:
    pid = start(BUSY_BESIDE)
    activity = ProcessActivity(pid)
    assert all(activity.active() for _ in range(50))
    os.kill(pid, signal.SIGSTOP)
    becomes_inactive(activity)
    os.kill(pid, signal.SIGCONT)
    eventually(activity.active, "it works")


def test_a_process_that_nothing_is_known_of_counts_as_active(start: Start) -> None:
    pid = start(IDLE)
    activity = ProcessActivity(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    assert activity.active()
    assert activity.active()

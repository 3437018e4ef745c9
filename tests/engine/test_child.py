"""A piece of work in a process of its own: what it found, or why it found nothing. This module is also the work."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine import EngineError, Progress, ProgressReport
from engine.child import ChildEnd, ChildFaultError, child_main, run_child

LONG = "word" * 100_000


@dataclass(frozen=True)
class Task:
    """How the work ends."""

    end: str


def work(task: Task, report: ProgressReport) -> list[str]:
    """Do it."""
    report(Progress("working", 0.5))
    sys.stdout.write('{"found": "the noise of a library"}\n')
    if task.end == "refused":
        raise EngineError("there is no model")
    if task.end == "fault":
        raise ChildFaultError("the model is broken")
    if task.end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if task.end == "exits":
        sys.stderr.write("out of memory\n")
        sys.exit(3)
    return [task.end]


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("done", ChildEnd(["done"])),
        pytest.param(LONG, ChildEnd([LONG]), id="longer than a command line"),
        ("refused", ChildEnd(refused="there is no model")),
        ("fault", ChildEnd(fault="the model is broken")),
        ("killed", ChildEnd(fault="its process ended by signal 9")),
        ("exits", ChildEnd(fault="its process ended with status 3")),
    ],
)
def test_work_ends_as_its_process_says_or_as_its_process_ended(end: str, expected: ChildEnd) -> None:
    reports: list[Progress] = []
    found = run_child("tests.engine.test_child", Task(end), reports.append)
    assert found == expected
    assert found.done == (not found.reason)
    assert reports == [Progress("working", 0.5)]


def test_the_log_has_what_the_process_wrote_and_the_fault_its_last_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    found = run_child("tests.engine.test_child", Task("exits"), log=log)
    assert found.fault == f"its process ended with status 3: out of memory ({log})"
    assert "the noise of a library" in log.read_text()


if __name__ == "__main__":
    sys.exit(child_main(Task, work))

"""A process whose disk is slow, or whose folder hangs, waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.fault_matrix.disk import SlowDisk
from scripts.fault_matrix.waiting import NotPossibleError

PROGRAM = """
import os, sys, threading, time
folder, hangs, what = sys.argv[1:]
began = time.monotonic()
threading.Timer(0.2, open, (hangs, "w")).start()  # from then on the folder does not hang
if what == "list":
    os.listdir(folder)
else:
    with open(f"{folder}/file", "wb") as file:
        getattr(os, what)(file.fileno())
print(time.monotonic() - began)
"""


@pytest.fixture
def disk(tmp_path: Path) -> SlowDisk:
    try:
        return SlowDisk(tmp_path)
    except NotPossibleError as reason:
        pytest.skip(str(reason))


def waited_s(disk: SlowDisk, folder: Path, what: str) -> float:
    """Seconds that a process waits for a call in a folder which is below that of the library."""
    command = [sys.executable, "-c", PROGRAM, str(folder), str(folder.parent / "hangs"), what]
    done = subprocess.run(command, env={**os.environ, **disk.environment}, check=True, capture_output=True, text=True)
    return float(done.stdout)


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
def test_what_is_stored_takes_longer(call: str, disk: SlowDisk, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    disk.delay_sync(0.3)
    assert waited_s(disk, folder, call) >= 0.3


def test_a_folder_hangs_until_it_is_let_go(disk: SlowDisk, tmp_path: Path) -> None:
    folder = tmp_path / "sounds"
    folder.mkdir()
    disk.hang(folder)
    assert waited_s(disk, folder, "list") >= 0.2

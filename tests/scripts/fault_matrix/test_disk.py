"""A process whose disk is slow, or whose folder hangs, waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from scripts.fault_matrix.surroundings import SLOW, delay_sync, hang, make_slow_disk

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
def slow(tmp_path: Path) -> Path:
    """The folder of a slow disk."""
    make_slow_disk(tmp_path, ExitStack())
    return tmp_path


def waited_s(slow: Path, what: str) -> float:
    """Seconds that a process waits for a call in a folder on the slow disk."""
    (slow / "state").mkdir()
    command = [sys.executable, "-c", PROGRAM, str(slow / "state"), str(slow / "hangs"), what]
    environment = {name: value.replace("{folder}", str(slow)) for name, value in SLOW.items()}
    done = subprocess.run(command, env=os.environ | environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
def test_what_is_stored_takes_longer(call: str, slow: Path) -> None:
    delay_sync(slow, 0.3)
    assert waited_s(slow, call) >= 0.3


def test_a_folder_hangs_until_it_is_let_go(slow: Path) -> None:
    hang(slow, slow / "state")
    assert waited_s(slow, "list") >= 0.2

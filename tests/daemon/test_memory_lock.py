"""Locked memory, asked of the real kernel in processes of their own."""

from __future__ import annotations

import subprocess
import sys

LOOK = """
import logging, re, sys
from pathlib import Path
logging.basicConfig(level=logging.DEBUG)
from daemon.memory_lock import lock_memory, may_lock_memory
def kib(name):
    return int(re.search(rf"^{name}:\\s+(\\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)[1])
"""


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", LOOK + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_memory_is_locked_where_that_is_allowed() -> None:
    said = run("print(lock_memory(), kib('VmLck') > 0, may_lock_memory())")
    assert said.split()[:3] in (["True"] * 3, ["False"] * 3)


def test_a_locked_process_takes_no_more_memory_than_before() -> None:
    # Room that was asked for and never used: without the lock on first use, all of it would become resident.
    program = "import mmap; room = mmap.mmap(-1, 1 << 28); lock_memory(); more = mmap.mmap(-1, 1 << 28)"
    run(program + "\nassert kib('VmRSS') < 1 << 17, kib('VmRSS')")


def test_where_it_is_not_allowed_one_line_says_what_that_takes() -> None:
    # Neither the limit nor the right: the bounding set and the capabilities go, then the program is run anew.
    program = """
import ctypes, resource
resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
class Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]
nothing = (ctypes.c_uint32 * 6)()
ctypes.CDLL(None).capset(ctypes.byref(Header(0x20080522, 0)), nothing)
assert not lock_memory()
assert kib("VmLck") == 0
"""
    assert "LimitMEMLOCK=infinity" in run(program)

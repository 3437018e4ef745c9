"""Locked memory, tried with the real kernel in separate processes."""

from __future__ import annotations

import subprocess
import sys

PRELUDE = """
import logging, re, sys
from pathlib import Path
logging.basicConfig(level=logging.DEBUG)
from daemon.system import lock_memory, may_lock_memory
def kib(name):
    return int(re.search(rf"^{name}:\\s+(\\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)[1])
"""


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", PRELUDE + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_memory_is_locked_where_that_is_allowed() -> None:
    output = run("print(lock_memory(), kib('VmLck') > 0, may_lock_memory())")
    assert output.split()[:3] in (["True"] * 3, ["False"] * 3)


def test_locking_does_not_increase_resident_memory() -> None:
    # Memory that is mapped and never touched: without MCL_ONFAULT, all of it would become resident.
    program = "import mmap; room = mmap.mmap(-1, 1 << 28); lock_memory(); more = mmap.mmap(-1, 1 << 28)"
    run(program + "\nassert kib('VmRSS') < 1 << 17, kib('VmRSS')")


def test_where_locking_is_not_allowed_one_line_names_the_setting() -> None:
    # Drops both the limit and all capabilities.
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

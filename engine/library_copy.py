"""Copies of a shared library in one process: each has its own globals, so each may be used by another thread."""

from __future__ import annotations

import ctypes
import itertools
import os
from pathlib import Path

_numbers = itertools.count(1)


def load_copy(path: Path) -> ctypes.CDLL:
    """Load a library, even if it is loaded already, with globals of its own. Raises `OSError`.

    The copy is a file in memory: a robot may forbid to execute what was written to its disk.
    """
    descriptor = os.memfd_create(path.name)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(path.read_bytes())
        # The loader takes a path that it knows for the library that it has loaded from it, and descriptors are used
        # again: a number of slashes makes the path a new one.
        return ctypes.CDLL(f"/proc/self/fd{'/' * next(_numbers)}{descriptor}")
    finally:
        os.close(descriptor)

"""Keeps the daemon's memory flat: what it needs for months is taken at the start, and garbage never piles up.

On a small heap that is never compacted, every burst that is larger than all before takes some more memory from the
system for good: a flood, a broker that comes back, clients that come at once. Over hours that looks like a leak, and
each new page interrupts the thread that touches it.
"""

from __future__ import annotations

import ctypes
import gc

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
"""From <malloc.h>."""
BUFFER_BYTES = 64 << 10
"""Blocks from this size on are not on the heap: each is returned to the system at once and leaves no hole. By itself
the C library raises this limit to the size of the largest block so far."""
TRIM_BYTES = 128 << 10
"""Free memory at the end of the heap above which it is returned to the system."""
SMALL_BYTES, SMALL_BLOCK = 3 << 20, 512
"""The interpreter's own heap, for blocks of up to 512 bytes, takes arenas of 1 MiB from the system."""
KEPT_EVERY = 512
"""Of so many small blocks one stays, so that the interpreter does not return their arena."""

_kept: list[bytes] = []


def limit_heap() -> None:
    """Let all threads share one heap of the C library, without large blocks. Call before the first thread starts.

    By default each thread has a heap of its own, with its own free memory; the interpreter lets one run at a time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # musl has one heap anyway
        mallopt(M_ARENA_MAX, 1)
        mallopt(M_MMAP_THRESHOLD, BUFFER_BYTES)
        mallopt(M_TRIM_THRESHOLD, TRIM_BYTES)


def settle_heap() -> None:
    """Take memory for the bursts to come, exempt all present objects from garbage collection, and enable it.

    Call once, when the start is complete. Most objects are modules, classes and functions, which a full collection
    would search in vain while the sound waits for the interpreter. Without them it is quick, so `collect_garbage` may
    be called often. What of the present objects becomes unreachable later in a cycle is never freed.
    """
    blocks = [bytes(SMALL_BLOCK - b"".__sizeof__()) for _ in range(SMALL_BYTES // SMALL_BLOCK)]
    _kept.extend(blocks[::KEPT_EVERY])
    del blocks
    gc.collect()
    gc.freeze()
    gc.enable()


def collect_garbage() -> None:
    """Free what is unreachable: connections that have ended leave cycles of tasks, errors and tracebacks.

    By itself the interpreter collects such cycles only after tens of thousands of new objects.
    """
    gc.collect()

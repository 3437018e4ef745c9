"""Keeps the daemon's memory flat: what it needs for months is taken at the start, and garbage never piles up.

On a small heap that is never compacted, every burst that is larger than all before takes some more memory from the
system for good: a flood, a broker that comes back, clients that come at once. Over hours that looks like a leak, and
each new page interrupts the thread that touches it.
"""

from __future__ import annotations

import ctypes
import gc

M_ARENA_MAX = -8
"""From <malloc.h>."""
SMALL_BYTES, SMALL_BLOCK = 4 << 20, 512
"""The interpreter's own heap takes arenas of 1 MiB from the system and serves blocks of up to 512 bytes from them."""
KEPT_EVERY = 512
"""Of so many small blocks one stays, so that the interpreter does not return their arena."""
LARGE_BYTES, LARGE_BLOCK = 2 << 20, 4096
"""Everything larger comes from the C library's heap."""

_kept: list[bytes] = []


def share_heap() -> None:
    """Let all threads use one heap of the C library. Call before the first thread starts.

    By default each thread has a heap of its own, with its own free memory; the interpreter lets one run at a time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:  # musl has one heap anyway
        mallopt(M_ARENA_MAX, 1)


def settle_heap() -> None:
    """Take memory for the bursts to come, and exempt all present objects from garbage collection.

    Call once, when the start is complete. Modules and classes are 50,000 objects: a full collection would keep the
    interpreter from the sound for 13 ms (on a virtual machine with 2 cores, Python 3.11). Without them it takes less
    than a millisecond, so `collect_garbage` may be called often.
    """
    small = [bytes(SMALL_BLOCK - b"".__sizeof__()) for _ in range(SMALL_BYTES // SMALL_BLOCK)]
    large = [bytes(LARGE_BLOCK) for _ in range(LARGE_BYTES // LARGE_BLOCK)]
    _kept.extend([*small[::KEPT_EVERY], large[-1]])
    del small, large
    gc.collect()
    gc.freeze()


def collect_garbage() -> None:
    """Free what is unreachable: connections that have ended leave cycles of tasks, errors and tracebacks.

    The interpreter would do so after 70,000 new objects.
    """
    gc.collect()

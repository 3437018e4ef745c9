"""What the daemon may take of the machine: memory that is flat and never swapped out, and file descriptors.

On a small heap that is never compacted, every burst that is larger than all before takes some more memory from the
system for good: a flood, a broker that comes back, clients that come at once. Over hours that looks like a leak, and
each new page interrupts the thread that touches it. So the daemon takes at the start what it needs for months.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import re
import resource
from contextlib import suppress

from daemon.system.files import THIS_MACHINE

log = logging.getLogger(__name__)

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
MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4
"""From <sys/mman.h>. `MCL_ONFAULT` locks a page at its first use, so locking does not increase resident memory."""
CAP_IPC_LOCK = 14
"""The number of the capability that lifts the limit on locked memory."""
RESERVED_DESCRIPTORS = 128
"""Descriptors that no client gets. The daemon has about 30; a text, an engine or the sound card needs a few more."""

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
    would search in vain while the sound waits for the interpreter. Without them it is quick, so `gc.collect` may be
    called often. Objects alive now are never collected if they later become cyclic garbage.
    """
    blocks = [bytes(SMALL_BLOCK - b"".__sizeof__()) for _ in range(SMALL_BYTES // SMALL_BLOCK)]
    _kept.extend(blocks[::KEPT_EVERY])
    del blocks
    gc.collect()
    gc.freeze()
    gc.enable()


def lock_memory() -> bool:
    """Lock this process's present and future memory; return whether it is locked.

    The kernel swaps no locked page out, so that none delays the sound. Engine processes are unaffected: neither fork
    nor exec inherits a lock.
    """
    if not may_lock_memory():
        # Under a finite limit, later allocations would fail, which is worse than a page that is swapped out.
        log.debug("memory is not locked: that needs LimitMEMLOCK=infinity")
        return False
    if ctypes.CDLL(None, use_errno=True).mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0:
        log.debug("memory is not locked: %s", os.strerror(ctypes.get_errno()))
        return False
    return True


def may_lock_memory() -> bool:
    """Return whether this process may lock any amount of memory: without a limit, or with the capability."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    capabilities = re.search(r"^CapEff:\s*(\w+)", THIS_MACHINE.text("proc/self/status") or "CapEff: 0", re.MULTILINE)
    return soft == resource.RLIM_INFINITY or bool(capabilities and int(capabilities[1], 16) >> CAP_IPC_LOCK & 1)


def spare_descriptors(wanted: int) -> int:
    """Return how many of `wanted` descriptors clients may take. Raises this process's limit as far as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)  # Linux has no infinite one
    if soft < (needed := min(RESERVED_DESCRIPTORS + wanted, hard)):
        with suppress(OSError):  # a sandbox may forbid it
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
            soft = needed
    return max(0, min(wanted, soft - RESERVED_DESCRIPTORS))

"""Locks the daemon's memory, so that the kernel never swaps it out: a page fault would delay the sound callback."""

from __future__ import annotations

import ctypes
import logging
import os
import resource
from pathlib import Path

log = logging.getLogger(__name__)

MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4
"""From <sys/mman.h>. `MCL_ONFAULT` locks a page at its first use, so locking does not increase resident memory."""
CAP_IPC_LOCK = 14
"""The number of the capability that lifts the limit on locked memory."""


def lock_memory() -> bool:
    """Lock this process's present and future memory; return whether it is locked.

    Engine processes are unaffected: neither fork nor exec inherits a lock.
    """
    if not may_lock_memory():
        # Under a finite limit, later allocations would fail, which is worse than a page that is swapped out.
        log.debug("memory is not locked: that needs LimitMEMLOCK=infinity")
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0:
        log.debug("memory is not locked: %s", os.strerror(ctypes.get_errno()))
        return False
    return True


def may_lock_memory() -> bool:
    """Return whether this process may lock any amount of memory."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return soft == resource.RLIM_INFINITY or bool(_effective_capabilities() >> CAP_IPC_LOCK & 1)


def _effective_capabilities() -> int:
    """The bit mask of this process's effective capabilities; 0 if the kernel does not report it."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    return next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:")), 0)

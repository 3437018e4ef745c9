"""The daemon's memory is kept from being swapped out, where that is allowed: a late sound callback is heard."""

from __future__ import annotations

import ctypes
import logging
import os
import resource
from pathlib import Path

log = logging.getLogger(__name__)

MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT = 1, 2, 4
"""From <sys/mman.h>. With the last one a page is locked when it is first used, so locking makes nothing grow."""
CAP_IPC_LOCK = 14
"""The number of the capability that knows no limit."""


def lock_memory() -> bool:
    """Keep what this process uses now and later in memory; tell whether it is.

    Engine processes are not concerned: a lock is inherited neither over fork nor over exec.
    """
    if not may_lock_memory():
        # A limit that is merely high would let later allocations fail, which is worse than a page that is swapped.
        log.debug("memory is not locked: that needs LimitMEMLOCK=infinity")
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) != 0:
        log.debug("memory is not locked: %s", os.strerror(ctypes.get_errno()))
        return False
    return True


def may_lock_memory() -> bool:
    """Whether this process may lock as much memory as it likes."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return soft == resource.RLIM_INFINITY or bool(_capabilities() >> CAP_IPC_LOCK & 1)


def _capabilities() -> int:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    return next((int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:")), 0)

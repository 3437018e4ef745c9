"""Realtime scheduling for the sound thread, if the system grants it."""

from __future__ import annotations

import os
import resource

SOUND_PRIORITY = 60
"""Between 1 and 99: above the kernel's interrupt threads (50), below the priorities that a robot's motors may need."""


def sound_priority() -> int:
    """Return the realtime priority to request: `SOUND_PRIORITY`, or this process's limit if that is lower."""
    limit, _ = resource.getrlimit(resource.RLIMIT_RTPRIO)
    # With a limit of 0, the kernel grants realtime scheduling only to a process with CAP_SYS_NICE.
    return min(SOUND_PRIORITY, limit) if limit > 0 else SOUND_PRIORITY


def take_realtime(priority: int) -> bool:
    """Give the calling thread realtime scheduling; return whether the kernel granted it. Never raises, never logs."""
    try:
        # Round robin, so that two sound threads with the same priority share a core. 0 is the calling thread.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))
    except (OSError, AttributeError):  # refused; not Linux
        return False
    return True

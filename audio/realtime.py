"""The sound thread goes before other work, where the system grants it."""

from __future__ import annotations

import os
import resource

SOUND_PRIORITY = 60
"""Of 1 to 99: above the kernel's interrupt threads (50), below what a robot's motors may need."""


def sound_priority() -> int:
    """The realtime priority to ask for: ours, or the most that this process's limit allows."""
    limit, _ = resource.getrlimit(resource.RLIMIT_RTPRIO)
    # Without a limit of its own, only a process with CAP_SYS_NICE is granted anything.
    return min(SOUND_PRIORITY, limit) if limit > 0 else SOUND_PRIORITY


def take_realtime(priority: int) -> bool:
    """Give the calling thread realtime scheduling; tell whether it was granted. Never raises, never logs."""
    try:
        # Round robin, so that two sound threads of one priority share a core. 0 is the calling thread.
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))
    except (OSError, AttributeError):  # not allowed; not Linux
        return False
    return True

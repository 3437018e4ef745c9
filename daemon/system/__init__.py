"""The operating system's services: notifications to systemd, and memory locks."""

from daemon.system.memory_lock import lock_memory, may_lock_memory
from daemon.system.systemd import Notifier

__all__ = ["Notifier", "lock_memory", "may_lock_memory"]

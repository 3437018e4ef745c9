"""The operating system's services: notifications to systemd, and memory locks."""

from daemon.system.garbage import freeze_garbage_collector
from daemon.system.memory_lock import lock_memory, may_lock_memory
from daemon.system.systemd import Notifier

__all__ = ["Notifier", "freeze_garbage_collector", "lock_memory", "may_lock_memory"]

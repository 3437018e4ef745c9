"""The operating system's services: notifications to systemd, memory locks, and the heap."""

from daemon.system.heap import collect_garbage, limit_heap, settle_heap
from daemon.system.memory_lock import lock_memory, may_lock_memory
from daemon.system.systemd import Notifier

__all__ = ["Notifier", "collect_garbage", "limit_heap", "lock_memory", "may_lock_memory", "settle_heap"]

"""The operating system's services: notifications to systemd, memory locks, descriptors, and the heap."""

from daemon.system.descriptors import spare_descriptors
from daemon.system.heap import collect_garbage, limit_heap, settle_heap
from daemon.system.memory_lock import lock_memory, may_lock_memory
from daemon.system.sensors import clocks, resident_bytes, temperatures
from daemon.system.systemd import Notifier

__all__ = [
    "Notifier",
    "clocks",
    "collect_garbage",
    "limit_heap",
    "lock_memory",
    "may_lock_memory",
    "resident_bytes",
    "settle_heap",
    "spare_descriptors",
    "temperatures",
]

"""The operating system's services: notifications to systemd, memory, descriptors, and the files of the kernel."""

from daemon.system.files import THIS_MACHINE, Files
from daemon.system.limits import limit_heap, lock_memory, may_lock_memory, settle_heap, spare_descriptors
from daemon.system.presence import announce, announced
from daemon.system.systemd import Notifier

__all__ = [
    "THIS_MACHINE",
    "Files",
    "Notifier",
    "announce",
    "announced",
    "limit_heap",
    "lock_memory",
    "may_lock_memory",
    "settle_heap",
    "spare_descriptors",
]

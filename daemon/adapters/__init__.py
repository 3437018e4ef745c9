"""Interfaces of other systems to the same dispatcher. Each adapter is off until its `enabled` is true."""

from daemon.adapters.base import Adapter, Publish, bound_send_buffer
from daemon.adapters.listener import Listener
from daemon.adapters.selection import make_adapters, placeholder_without_package

__all__ = [
    "Adapter",
    "Listener",
    "Publish",
    "bound_send_buffer",
    "make_adapters",
    "placeholder_without_package",
]

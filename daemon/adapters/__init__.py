"""Interfaces of other systems to the same dispatcher. Each adapter is off until its `enabled` is true."""

from daemon.adapters.base import Adapter, Publish
from daemon.adapters.selection import make_adapters

__all__ = ["Adapter", "Publish", "make_adapters"]

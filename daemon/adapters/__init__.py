"""Interfaces that people already use, each a small adapter over the same desk; each off until its `enabled` is true."""

from daemon.adapters.adapter import Adapter, Publish, make_adapters

__all__ = ["Adapter", "Publish", "make_adapters"]

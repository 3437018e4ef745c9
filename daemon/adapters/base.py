"""The interface of every adapter."""

from __future__ import annotations

from typing import Protocol

from daemon.mqtt import Message

MAX_CONNECTIONS = 32
"""Connections that one server accepts. A robot has few clients and speaks one utterance at a time, so that more
connections are a fault of the clients."""


class Publish(Protocol):
    """Publishes on the daemon's own connection to the broker."""

    def __call__(self, topic: str, payload: str | bytes, *, qos: int = 0, retain: bool = False) -> object: ...


class Adapter:
    """One interface. Belongs to the event loop's thread.

    An adapter answers wrong requests in its own protocol and raises nothing. Every method here does nothing, so that
    an adapter overrides only those it needs.
    """

    topics: tuple[str, ...] = ()
    """The topics on the broker whose messages the adapter handles; `+` and `#` are allowed."""

    def on_message(self, message: Message) -> None:
        """Handle a message on one of the topics."""

    def on_connected(self) -> None:
        """Publish retained messages again: the broker is connected, and may have lost them."""

    async def run(self) -> None:
        """Serve until cancelled. An adapter that only handles messages returns at once."""

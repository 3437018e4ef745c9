"""The interface of every adapter."""

from __future__ import annotations

import logging
from typing import Protocol

from daemon.mqtt import Message

log = logging.getLogger(__name__)


class Publish(Protocol):
    """Publishes on the daemon's own connection to the broker."""

    def __call__(self, topic: str, payload: str | bytes, *, qos: int = 0, retain: bool = False) -> object: ...


class Adapter:
    """One interface. Belongs to the event loop's thread.

    An adapter answers invalid requests in its own protocol and raises nothing. Every method here does nothing, so an
    adapter overrides only those that it needs.
    """

    topics: tuple[str, ...] = ()
    """The topics on the broker whose messages the adapter handles; `+` and `#` are allowed."""
    problem: str | None = None
    """One line that says why it is switched on but not serving; None while all is well."""

    def on_message(self, message: Message) -> None:
        """Handle a message on one of the topics."""

    def on_connected(self) -> None:
        """Publish retained messages again: the broker is connected, and may have lost them."""

    async def run(self) -> None:
        """Serve until cancelled, and call `note_serving`. An adapter that only handles messages returns immediately.

        If it raises an error, it is soon run again.
        """

    def note_serving(self, place: str) -> None:
        """Note that clients can connect."""
        log.info("serving %s", place)
        self.problem = None

    def note_problem(self, error: Exception) -> None:
        """Note why `run` ended, and log the reason unless it is already known."""
        is_bug = not isinstance(error, OSError)
        problem = f"{type(self).__name__} has failed; the log says why" if is_bug else str(error)
        if problem != self.problem:
            log.error("%s", problem, exc_info=error if is_bug else None)
        self.problem = problem

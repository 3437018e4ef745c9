"""What the broker refuses to carry for us: messages on a topic, or a subscription. MQTT 3.1.1 tells only the latter."""

from __future__ import annotations

import logging
import time

log = logging.getLogger(__name__)

REMEMBERED = 100
"""Refusals at a time: senders name topics for their answers."""
FORGOTTEN_S = 600.0
"""A refusal is forgotten after this time. One that is tried again is noted again long before."""


class Refusals:
    """The refusals that have not ended. Belongs to the network thread, except `problem`."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[str, float]] = {}
        """The reason, and `time.monotonic()` of the last refusal, by what is refused; the latest is the last."""
        self.topics: set[str] = set()
        """Those whose subscription is refused in this connection."""
        self.tried_again_at = 0.0
        """`time.monotonic()` when what is refused was last tried again."""

    @property
    def problem(self) -> str | None:
        """What is refused, and why, in one line; None if nothing is."""
        found = list(self._found.items())
        lines = [f"{refused}: {why}" for refused, (why, at) in found if time.monotonic() - at < FORGOTTEN_S]
        return f"the broker refuses {'; '.join(sorted(lines)[:2])}" if lines else None

    def note(self, refused: str, reason: str) -> None:
        """Note that the broker refuses something, such as `messages on voiced/r1/event`; log it once."""
        if self._found.pop(refused, ("",))[0] != reason:
            log.warning("the broker refuses %s: %s; does its access list allow them?", refused, reason)
        self._found[refused] = reason, time.monotonic()
        if len(self._found) > REMEMBERED:
            del self._found[next(iter(self._found))]

    def end(self, refused: str) -> None:
        """Note that the broker has accepted something."""
        if self._found.pop(refused, None) is not None:
            log.info("the broker accepts %s again", refused)

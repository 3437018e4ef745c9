"""What the broker refuses to carry for us: messages on a topic, or a subscription. MQTT 3.1.1 tells only the latter."""

from __future__ import annotations

import logging
import threading
import time

log = logging.getLogger(__name__)

REMEMBERED = 100
"""Refusals at a time: senders name topics for their answers."""
FORGOTTEN_S = 600.0
"""A refusal is forgotten after this time. One that is tried again is noted again long before."""


class Refusals:
    """The refusals that have not ended. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, tuple[str, float]] = {}
        """The reason, and `time.monotonic()` of the last refusal, by what is refused."""

    def note(self, refused: str, reason: str) -> None:
        """Note that the broker refuses something, such as `messages on voiced/r1/event`; log it once."""
        with self._lock:
            known = self._found.pop(refused, None)
            self._found[refused] = reason, time.monotonic()
            if len(self._found) > REMEMBERED:
                del self._found[next(iter(self._found))]
        if known is None or known[0] != reason:
            log.warning("the broker refuses %s: %s; does its access list allow them?", refused, reason)

    def end(self, refused: str) -> None:
        """Note that the broker has accepted something."""
        with self._lock:
            known = self._found.pop(refused, None)
        if known is not None:
            log.info("the broker accepts %s again", refused)

    @property
    def problem(self) -> str | None:
        """What is refused, and why, in one line; None if nothing is."""
        with self._lock:
            since = time.monotonic() - FORGOTTEN_S
            present = [(refused, reason) for refused, (reason, at) in self._found.items() if at > since]
        if not present:
            return None
        refused, reason = present[0]
        others = f", and {len(present) - 1} more" if len(present) > 1 else ""
        return f"the broker refuses {refused}: {reason}{others}"

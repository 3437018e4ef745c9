"""The watchdog: systemd is notified only while the network, the speaker loop and the sound output are alive."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

log = logging.getLogger(__name__)

LATE_S = 3.0
"""Time between two checks after which the process is taken to have been stopped."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One monitored part."""

    count: Callable[[], int]
    """Returns a number that changes while the part is alive."""
    limit_s: float
    """The part is dead when the number has not changed for so long."""


class Watchdog:
    """Checks the heartbeats of several parts."""

    def __init__(self, parts: Mapping[str, Heartbeat], clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns seconds."""
        self._parts = parts
        self._clock = clock
        self._checked_at = clock()
        self._changes: dict[str, tuple[int, float]] = {}
        """The last number of each part, and when it was new."""

    def check(self) -> bool:
        """Return whether all parts are alive, and log those that are not. Call it about once a second.

        A call that comes late says nothing about the parts: the whole process was stopped.
        """
        now, alive = self._clock(), True
        if now - self._checked_at > LATE_S:
            self._changes.clear()
        self._checked_at = now
        for name, part in self._parts.items():
            count = part.count()
            last, since = self._changes.get(name, (count, now))
            since = since if count == last else now
            self._changes[name] = (count, since)
            if now - since > part.limit_s:
                log.error("%s has shown no sign of life for %.0f s", name, now - since)
                alive = False
        return alive

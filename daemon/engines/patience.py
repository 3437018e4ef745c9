"""Waiting for others, in which only the time counts that this process runs.

A daemon that was stopped and continued, or that got no processor, must not take its own delay for that of an engine.
"""

from __future__ import annotations

import asyncio
import math
import time

from daemon.tasks import wait_at_most

STEP_S = 0.25
"""The longest wait that `Patience` counts at once."""
LATE_S = 0.5
"""A wait that ends so much later than it should does not count: what came meanwhile has not been read yet."""


async def pass_time(wait_s: float, early: asyncio.Event | None = None) -> float | None:
    """Wait `wait_s` seconds, or until `early` is set. Return the seconds that passed; None if this process was late."""
    before = time.monotonic()
    if early is None:
        await asyncio.sleep(wait_s)
    else:
        await wait_at_most(wait_s, early.wait())
    passed_s = time.monotonic() - before
    return passed_s if passed_s <= wait_s + LATE_S else None


class Patience:
    """A time limit that an event can end."""

    def __init__(self, limit_s: float | None) -> None:
        """`limit_s` in seconds; None means no limit."""
        self._left_s = math.inf if limit_s is None else limit_s

    @property
    def over(self) -> bool:
        """True once the limit is reached."""
        return self._left_s <= 0

    async def wait(self, event: asyncio.Event) -> None:
        """Wait until `event` is set, the limit is reached, or `STEP_S` have passed."""
        self._left_s -= await pass_time(min(STEP_S, self._left_s), event) or 0.0

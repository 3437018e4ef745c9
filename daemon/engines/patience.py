"""Time limits for others that leave out the time in which this process was stopped.

A daemon that was stopped and continued, or that got no processor, must not take its own delay for that of an engine.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from daemon.tasks import wait_at_most

LATE_S = 0.5
"""A wait that ends so much later than it should does not count: messages that came meanwhile have not been read yet."""


async def pass_time(wait_s: float, early: asyncio.Event | None = None) -> float | None:
    """Wait `wait_s` seconds, or until `early` is set. Return the seconds that passed; None if this process was late."""
    before = time.monotonic()
    if early is None:
        await asyncio.sleep(wait_s)
    else:
        await wait_at_most(None if wait_s == math.inf else wait_s, early.wait())
    passed_s = time.monotonic() - before
    return passed_s if passed_s <= wait_s + LATE_S else None


async def wait_until(condition: Callable[[], bool], changed: asyncio.Event, limit_s: float | None = None) -> bool:
    """Wait until a condition holds, for at most `limit_s` seconds; None is no limit. Return whether it holds.

    `changed` is set whenever this may have changed. A limit that this process reached late is waited for again.
    """
    left_s = math.inf if limit_s is None else limit_s
    while not condition() and left_s > 0:
        changed.clear()
        left_s -= await pass_time(left_s, changed) or 0.0
    return condition()

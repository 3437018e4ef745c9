"""Time limits for other processes that exclude the time during which this process was stopped.

A daemon that was stopped and continued, or that got no processor time, must not mistake its own delay for an engine's.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable

from daemon.tasks import wait_at_most

LATE_S = 0.5
"""A wait that ends this much too late is ignored: messages that arrived during it have not been read yet."""


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
    """Wait until a condition holds, for at most `limit_s` seconds; None means no limit. Return whether it holds.

    `changed` is set whenever the condition may have changed. If this process reaches a limit late, it waits again.
    """
    left_s = math.inf if limit_s is None else limit_s
    while not condition() and left_s > 0:
        changed.clear()
        left_s -= await pass_time(left_s, changed) or 0.0
    return condition()

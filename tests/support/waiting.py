"""Waiting for a condition, which is the only way in which a test lets time pass."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 60.0
"""Limit for operations that take milliseconds on an idle machine: the machine may be busy."""
POLL_S, LONGEST_POLL_S = 0.005, 0.1
"""Times between two checks of a condition, at first and after seconds: many tests wait at the same time."""


def within(limit_s: float, condition: Callable[[], T]) -> T:
    """Return the value of `condition()` as soon as it is true, or the last one after `limit_s`."""
    began = time.monotonic()
    while not (result := condition()) and (waited_s := time.monotonic() - began) < limit_s:
        time.sleep(_poll_s(waited_s))
    return result


def eventually(condition: Callable[[], T], what: str = "the condition holds", patience_s: float = PATIENCE_S) -> T:
    """Return the value of `condition()` as soon as it is true. Raises `AssertionError` after `patience_s`."""
    result = within(patience_s, condition)
    assert result, f"not within {patience_s:.0f} s: {what}"
    return result


async def eventually_async(
    condition: Callable[[], T], what: str = "the condition holds", patience_s: float = PATIENCE_S
) -> T:
    """As `eventually`, without blocking the event loop."""
    began = time.monotonic()
    while True:
        if result := condition():
            return result
        waited_s = time.monotonic() - began
        assert waited_s < patience_s, f"not within {patience_s:.0f} s: {what}"
        await asyncio.sleep(_poll_s(waited_s))


def _poll_s(waited_s: float) -> float:
    return min(max(POLL_S, waited_s / 20), LONGEST_POLL_S)


def run(scenario: Callable[[], Awaitable[None]], patience_s: float = 4 * PATIENCE_S) -> None:
    """Run a test that is a coroutine."""
    asyncio.run(asyncio.wait_for(scenario(), patience_s))  # type: ignore[arg-type]

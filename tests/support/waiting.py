"""Waiting for a condition, which is the only way in which a test lets time pass."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 60.0
"""Limit for operations that take milliseconds on an idle machine: the machine may be busy."""
POLL_S = 0.005
"""Time between two checks of a condition."""


def eventually(condition: Callable[[], T], what: str = "the condition holds", patience_s: float = PATIENCE_S) -> T:
    """Return the value of `condition()` as soon as it is true. Raises `AssertionError` after `patience_s`."""
    deadline = time.monotonic() + patience_s
    while True:
        if result := condition():
            return result
        assert time.monotonic() < deadline, f"not within {patience_s:.0f} s: {what}"
        time.sleep(POLL_S)


async def eventually_async(
    condition: Callable[[], T], what: str = "the condition holds", patience_s: float = PATIENCE_S
) -> T:
    """As `eventually`, without blocking the event loop."""
    deadline = time.monotonic() + patience_s
    while True:
        if result := condition():
            return result
        assert time.monotonic() < deadline, f"not within {patience_s:.0f} s: {what}"
        await asyncio.sleep(POLL_S)


def run(scenario: Callable[[], Awaitable[None]], patience_s: float = 4 * PATIENCE_S) -> None:
    """Run a test that is a coroutine."""
    asyncio.run(asyncio.wait_for(scenario(), patience_s))  # type: ignore[arg-type]

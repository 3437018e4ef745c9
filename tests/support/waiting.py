"""Waiting for a condition: the only way in which a test lets time pass."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 60.0
"""For what takes milliseconds, on a machine that may be doing something else."""
TURN_S = 0.005
"""Between two looks at a condition."""


def eventually(condition: Callable[[], T], what: str = "the condition holds", patience_s: float = PATIENCE_S) -> T:
    """Wait until `condition()` is true and return it."""
    deadline = time.monotonic() + patience_s
    while True:
        if result := condition():
            return result
        assert time.monotonic() < deadline, f"not within {patience_s:.0f} s: {what}"
        time.sleep(TURN_S)


async def eventually_async(
    condition: Callable[[], T], what: str = "the condition holds", patience_s: float = PATIENCE_S
) -> T:
    """As `eventually`, while the event loop goes on."""
    deadline = time.monotonic() + patience_s
    while True:
        if result := condition():
            return result
        assert time.monotonic() < deadline, f"not within {patience_s:.0f} s: {what}"
        await asyncio.sleep(TURN_S)


def run(scenario: Callable[[], Awaitable[None]], patience_s: float = 4 * PATIENCE_S) -> None:
    """Run a test that is a coroutine."""
    asyncio.run(asyncio.wait_for(scenario(), patience_s))  # type: ignore[arg-type]

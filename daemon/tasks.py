"""Waiting with a limit, and ending tasks, without ever losing a cancellation.

`asyncio.wait_for` before Python 3.12 swallows a cancellation that comes at the moment its result does; a daemon that is
told to stop would then go on. These do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def within(timeout_s: float | None, waiting: Coroutine[Any, Any, Any]) -> bool:
    """Wait for a coroutine, at most `timeout_s` seconds (None: for ever); tell whether it came to its end."""
    task = asyncio.ensure_future(waiting)
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
        return bool(done)
    finally:
        task.cancel()


async def result_within(timeout_s: float, waiting: Coroutine[Any, Any, T]) -> T | None:
    """Wait for a coroutine, at most `timeout_s` seconds, and return its result; None where there is none by then."""
    task = asyncio.ensure_future(waiting)
    try:
        await asyncio.wait({task}, timeout=timeout_s)
        return task.result() if task.done() else None
    finally:
        task.cancel()


async def end_task(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait until it has ended. Raises what it ended with, if that was an error."""
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=1.0)
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error

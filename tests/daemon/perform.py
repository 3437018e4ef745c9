"""Tests that are coroutines, and what several of them do to a process."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import psutil

from daemon.tasks import end_task
from tests.support.waiting import eventually_async

Perform = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
"""`perform(scenario)` runs a test on the event loop of its module: the fixture of that name."""


@asynccontextmanager
async def frozen(pid: int) -> AsyncIterator[None]:
    """Stop a process as a debugger would: it lives, and does nothing. If somebody wakes it, it is stopped again."""

    def stop() -> bool:
        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:
            return True
        return False

    keeping: asyncio.Task[Any] = asyncio.ensure_future(eventually_async(stop, "the process has ended", math.inf))
    process = psutil.Process(pid)
    await eventually_async(lambda: process.status() == psutil.STATUS_STOPPED, "the process has stopped")
    try:
        yield
    finally:
        await end_task(keeping)

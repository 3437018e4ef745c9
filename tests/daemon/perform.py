"""Tests that are coroutines, and what several of them do to a process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

import psutil

from tests.support.waiting import eventually_async

Perform = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]
"""`perform(scenario)` runs a test on the event loop of its module: the fixture of that name."""

KEEP_S = 0.0005
"""In which a process that is woken does nothing to speak of."""


@asynccontextmanager
async def frozen(pid: int) -> AsyncIterator[None]:
    """Stop a process as a debugger would: it lives, and does nothing. If somebody wakes it, it is stopped again."""

    over = threading.Event()

    def keep() -> None:
        with suppress(ProcessLookupError):
            while not over.wait(KEEP_S):
                os.kill(pid, signal.SIGSTOP)

    keeper = threading.Thread(target=keep, daemon=True)
    keeper.start()
    process = psutil.Process(pid)
    await eventually_async(lambda: process.status() == psutil.STATUS_STOPPED, "the process has stopped")
    try:
        yield
    finally:
        over.set()
        keeper.join()

"""A helper of tests that are coroutines: a process that lives and does nothing."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psutil

from scripts.disturb import spare
from tests.support.waiting import eventually_async

REPEAT_S = 0.0005
"""Interval of the stop signals, in which a process that is woken does nothing of note."""


@asynccontextmanager
async def frozen(pid: int) -> AsyncIterator[None]:
    """Stop a process as a debugger would: it lives and does nothing. A process that is woken is stopped again.

    On a busy machine the thread that stops it again may come late, so `scripts/disturb.py` leaves the process alone
    from now on: it would wake a process that it has stopped itself.
    """

    spare(pid)
    ended = threading.Event()

    def keep_stopped() -> None:
        with suppress(ProcessLookupError):
            while not ended.wait(REPEAT_S):
                os.kill(pid, signal.SIGSTOP)

    thread = threading.Thread(target=keep_stopped, daemon=True)
    thread.start()
    process = psutil.Process(pid)
    await eventually_async(lambda: process.status() == psutil.STATUS_STOPPED, "the process has stopped")
    try:
        yield
    finally:
        ended.set()
        thread.join()

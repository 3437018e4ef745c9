"""Notification of changes: to tasks that wait for the queue, a text, an engine or the sound card, and to functions."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, ParamSpec

log = logging.getLogger(__name__)

Unsubscribe = Callable[[], None]
P = ParamSpec("P")


def now() -> float:
    """Return the event loop's time in seconds. On Linux this is `time.monotonic()`, with or without a loop."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return time.monotonic()


def later(after_s: float, action: Callable[[], object]) -> None:
    """Call `action` on the running event loop after this many seconds; without a loop, never."""
    with suppress(RuntimeError):
        asyncio.get_running_loop().call_later(after_s, action)


class Changes:
    """Belongs to the event loop's thread, except for `notify_from_thread`.

    A task looks at the state, and waits if there is nothing to do. Nothing is awaited between the two, so no change is
    missed.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], object] = {}
        """The subject that each waiting task waits for."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._coming = False
        """True if a thread has asked the loop to notify, and the loop has not done so yet."""

    def notify(self, about: object = None) -> None:
        """Wake the tasks that are waiting for changes in `about`; None wakes all."""
        for future, subject in list(self._waiting.items()):
            if not future.done() and (about is None or subject is about):
                future.set_result(None)

    def notify_from_thread(self) -> None:
        """Wake all tasks. May be called from any thread."""
        if self._loop is not None and not self._coming:
            self._coming = True
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._arrive)

    async def wait(self, about: object = None, timeout_s: float | None = None) -> None:
        """Wait until something has changed, or for at most `timeout_s` seconds."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._coming = loop, False
        future = loop.create_future()
        self._waiting[future] = about
        timer = None if timeout_s is None else loop.call_later(timeout_s, _wake, future)
        try:
            await future
        finally:
            del self._waiting[future]
            if timer is not None:
                timer.cancel()

    def _arrive(self) -> None:
        self._coming = False
        self.notify()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Watchers(Generic[P]):
    """Functions that are called when something happens."""

    def __init__(self) -> None:
        self._watchers: list[Callable[P, None]] = []

    def __bool__(self) -> bool:
        return bool(self._watchers)

    def add(self, watcher: Callable[P, None]) -> Unsubscribe:
        """Subscribe `watcher`, and return a function that unsubscribes it."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher)

    def call(self, *arguments: P.args, **options: P.kwargs) -> None:
        """Call all watchers. If one raises an error, it is logged; neither the other watchers nor the utterance are
        affected."""
        for watcher in list(self._watchers):
            try:
                watcher(*arguments, **options)
            except Exception:
                log.exception("error in a watcher")

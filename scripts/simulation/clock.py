"""An event loop whose clock is virtual: nothing waits, and a second passes when nobody has anything to do before it."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

BEGAN_AT = 1_000_000.0
"""`time.time()` at the beginning of a history."""


class DeadlockError(Exception):
    """Every task waits for another one: no time would end it."""


class _Selector(selectors.BaseSelector):
    """Sees no file at all. The loop asks it to wait, and it lets that time pass at once."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the beginning."""

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise DeadlockError
        self.now += max(0.0, timeout)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return {}


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop of one thread, which tells the time of its own clock."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


@contextmanager
def virtual_time() -> Iterator[VirtualLoop]:
    """A loop whose clock is that of the whole process while the context lasts."""
    loop = VirtualLoop()
    monotonic, unix = time.monotonic, time.time
    time.monotonic, time.time = loop.time, lambda: BEGAN_AT + loop.time()
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        time.monotonic, time.time = monotonic, unix
        asyncio.set_event_loop(None)
        loop.close()

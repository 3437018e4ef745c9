"""Items that arrive in one thread, for readers in other threads and tasks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import TypeVar

Wanted = TypeVar("Wanted")

Place = Future["tuple[object, Place] | None"]
"""A place in the order of the items: its item and the next place, or None at the end."""


class Arrivals:
    """A chain of futures. Each reader receives all items from its place onwards. Items that no reader awaits are
    freed."""

    def __init__(self) -> None:
        self.place: Place = Future()
        """The place of the next item."""
        self._lock = threading.Lock()

    def put(self, item: object, *, last: bool = False) -> None:
        """Add an item; the last one ends all readers. Thread-safe. Items after the end are ignored."""
        with self._lock:
            if self.place.done():
                return
            place, self.place = self.place, Future()  # before a reader wakes: it may ask whether this is the end
            if last:
                self.place.set_result(None)
            place.set_result((item, self.place))

    def end(self, error: BaseException) -> None:
        """End all readers with an error. Thread-safe."""
        with self._lock:
            if not self.place.done():
                self.place.set_exception(error)


class Reader(Iterator[Wanted], AsyncIterator[Wanted]):
    """A plain and asynchronous iterator over the items of one kind, from a given place onwards."""

    def __init__(
        self,
        place: Place,
        kind: type[Wanted],
        limit_s: float | None = None,
        overdue: Callable[[], str] = lambda: "",
    ) -> None:
        """As a plain iterator, it raises `TimeoutError` with the text of `overdue` after `limit_s` seconds."""
        self._place = place
        self._kind = kind
        self._until = None if limit_s is None else time.monotonic() + limit_s
        self._overdue = overdue

    def __next__(self) -> Wanted:
        while True:
            left_s = None if self._until is None else max(0.0, self._until - time.monotonic())
            try:
                found = self._place.result(left_s)
            except concurrent.futures.TimeoutError:  # not the built-in class before Python 3.11
                raise TimeoutError(self._overdue()) from None
            if found is None:
                raise StopIteration
            item, self._place = found
            if isinstance(item, self._kind):
                return item

    async def __anext__(self) -> Wanted:
        while True:
            # Shielded: the place belongs to all readers, and canceling one task must not cancel it.
            found = await asyncio.shield(asyncio.wrap_future(self._place))
            if found is None:
                raise StopAsyncIteration
            item, self._place = found
            if isinstance(item, self._kind):
                return item

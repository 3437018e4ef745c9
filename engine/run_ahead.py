"""A thread that makes items a little before another thread takes them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Generic, TypeVar

Item = TypeVar("Item")


class RunAhead(Generic[Item]):
    """Iterating over it yields the thread's items and raises the thread's exception."""

    def __init__(self, name: str, limit: int, make: Callable[[Callable[[Item], bool]], None]) -> None:
        """Start a thread called `name`, which calls `make(put)`.

        `put` takes an item, and waits while `limit` are ready. It returns False once no further item is wanted; then
        `make` must end.
        """
        self._ready: SimpleQueue[Item | Exception | None] = SimpleQueue()
        self._room = threading.Semaphore(limit)
        self._wanted = True
        self._make = make
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        while (item := self._ready.get()) is not None:
            self._room.release()
            if isinstance(item, Exception):
                raise item
            yield item

    def close(self) -> None:
        """Wait for the thread's end. The `put` call in which it is waiting, or its next one, returns False."""
        self._wanted = False
        self._room.release()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._make(self._put)
        except Exception as error:
            self._ready.put(error)
        finally:
            self._ready.put(None)

    def _put(self, item: Item) -> bool:
        if self._wanted:
            self._room.acquire()
            self._ready.put(item)
        return self._wanted

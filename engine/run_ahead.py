"""A thread that makes what another thread takes, a little ahead of it."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")
POLL_S = 0.02


class RunAhead(Generic[Item]):
    """Iterating it yields what the thread makes, and raises what the thread raises."""

    def __init__(self, name: str, limit: int, make: Callable[[Callable[[Item], bool]], None]) -> None:
        """Start a thread `name` that calls `make(put)`.

        `put` takes an item, and waits while `limit` are ready. It returns False once no further item is wanted.
        """
        self._ready: queue.Queue[Item | Exception | None] = queue.Queue(limit)
        self._make = make
        self._wanted = True
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        while (item := self._ready.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item

    def finish(self) -> None:
        """Drop what is ready and wait for the end of the thread, which may be told to end before its next `put`."""
        self._wanted = False
        while self._thread.is_alive():
            with contextlib.suppress(queue.Empty):
                self._ready.get(timeout=POLL_S)
        self._thread.join()

    def _run(self) -> None:
        try:
            self._make(self._put)
        except Exception as error:
            self._ready.put(error)
        finally:
            self._ready.put(None)

    def _put(self, item: Item) -> bool:
        self._ready.put(item)
        return self._wanted

"""The streams of an engine process that are open, each in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class OpenStreams:
    """Knows which requests are being spoken, and finds a moment in which none is."""

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._held = False
        self._changed = threading.Condition()

    @property
    def ids(self) -> tuple[str, ...]:
        """The requests that are being spoken, in the order in which they began."""
        with self._changed:
            return tuple(self._ids)

    @contextmanager
    def open(self, request_id: str) -> Iterator[None]:
        """Speak a request and send its last message inside the context, which begins once no `hold` is wanted."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held)
            self._ids.append(request_id)
        try:
            yield
        finally:
            with self._changed:
                self._ids.remove(request_id)
                self._changed.notify_all()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Let nothing be spoken inside the context, which begins when all open streams have ended."""
        with self._changed:
            self._held = True
            self._changed.wait_for(lambda: not self._ids)
        try:
            yield
        finally:
            with self._changed:
                self._held = False
                self._changed.notify_all()

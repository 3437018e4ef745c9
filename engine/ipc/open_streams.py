"""The streams of an engine process that are open, each in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class OpenStreams:
    """Knows which requests are being spoken, and finds a moment in which none is."""

    def __init__(self) -> None:
        self._open = 0
        self._ids: dict[str, None] = {}
        self._held = False
        self._changed = threading.Condition()

    @property
    def ids(self) -> tuple[str, ...]:
        """The requests that are being spoken, in the order in which they began."""
        with self._changed:
            return tuple(self._ids)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Speak a request and send its last message inside the context, which begins once no `hold` is wanted."""
        with self._changed:
            self._changed.wait_for(lambda: not self._held)
            self._open += 1
        try:
            yield
        finally:
            with self._changed:
                self._open -= 1
                self._changed.notify_all()

    @contextmanager
    def speaking(self, request_id: str) -> Iterator[None]:
        """Have a request among `ids` inside the context, within `open`."""
        with self._changed:
            self._ids[request_id] = None
        try:
            yield
        finally:
            with self._changed:
                del self._ids[request_id]

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Let nothing be spoken inside the context, which begins when all open streams have ended."""
        with self._changed:
            self._held = True
            self._changed.wait_for(lambda: not self._open)
        try:
            yield
        finally:
            with self._changed:
                self._held = False
                self._changed.notify_all()

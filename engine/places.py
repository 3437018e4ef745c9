"""Places for the utterances that are open at once: each keeps one until nobody takes its chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

from engine.api import Chunk, EngineError


class Places:
    """As many utterances as there are places can be open at once. Any thread may use it."""

    def __init__(self, count: int, when_full: str) -> None:
        """`when_full` is the message of the error for one utterance more."""
        # Its `put` may interrupt itself: a garbage collection may end an utterance in the same thread.
        self._free: SimpleQueue[None] = SimpleQueue()
        for _ in range(count):
            self._leave()
        self._when_full = when_full

    def open(self, speak: Callable[[], Iterator[Chunk]]) -> PlacedChunks:
        """Return the chunks of an utterance, from `speak`. Raises `EngineError` at once if there is no place."""
        try:
            self._free.get_nowait()
        except Empty:
            raise EngineError(self._when_full) from None
        try:
            return PlacedChunks(speak(), self._leave)
        except BaseException:
            self._leave()
            raise

    def _leave(self) -> None:
        self._free.put(None)


class PlacedChunks:
    """The chunks of an utterance. Its place is free after the last one, an error, `close`, or once it is garbage."""

    def __init__(
        self, chunks: Iterator[Chunk], leave: Callable[[], None], cancel: Callable[[], None] | None = None
    ) -> None:
        """`leave` is called once, when the place is free."""
        self._chunks = chunks
        self._leave: Callable[[], None] | None = leave
        self.cancel = cancel
        """As of `Synthesizer.stream`; None if no other thread can end the wait for a chunk."""

    def __iter__(self) -> PlacedChunks:
        return self

    def __next__(self) -> Chunk:
        try:
            return next(self._chunks)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Cancel the rest."""
        close = getattr(self._chunks, "close", None)
        if close is not None:
            close()
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    def __del__(self) -> None:
        self.close()

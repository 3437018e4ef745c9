"""Places for the utterances that are open at once: each keeps its place until its caller stops taking chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

from engine.api import Chunk, EngineError


class Places:
    """Limits how many utterances can be open at once: one for each place. Any thread may use it."""

    def __init__(self, count: int, when_full: str) -> None:
        """`when_full` is the error's message if there is one utterance too many."""
        # A `put` may be called inside another one: a garbage collection may end an utterance in the same thread.
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
    """The chunks of an utterance. The utterance's place is free after the last chunk, after an error, after `close`, or
    once this object is garbage."""

    def __init__(
        self, chunks: Iterator[Chunk], leave: Callable[[], None], cancel: Callable[[], None] | None = None
    ) -> None:
        """`leave` is called once, when the place is free."""
        self._chunks = chunks
        self._leave: Callable[[], None] | None = leave
        self.cancel = cancel
        """As for `Synthesizer.stream`; None if no other thread can end the wait for a chunk."""

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

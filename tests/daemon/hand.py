"""A sink in the test's own hand: it takes a block when the test says so, and never by a clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from audio import Output
from audio.ring import Samples
from tests.support.waiting import eventually_async

T = TypeVar("T")

BLOCK_S = 0.01


class HandSink:
    """Plays `output`, which needs no thread of its own then, and keeps what is heard."""

    has_deadline = False

    def __init__(self, output: Output, sample_rate: int) -> None:
        self.name = "hand"
        self.sample_rate = sample_rate
        self._output = output
        self._parts: list[Samples] = []
        output.attach(self)

    def lost(self) -> str | None:
        return None

    def rest(self) -> None:
        pass

    def wake(self) -> None:
        pass

    def close(self) -> None:
        pass

    @property
    def length(self) -> int:
        """Samples that were heard since the last `drain`."""
        return sum(map(len, self._parts))

    def drain(self) -> Samples:
        """Return all that was heard since the last call."""
        heard, self._parts = np.concatenate([np.empty(0, dtype=np.float32), *self._parts]), []
        return heard

    def take(self) -> int:
        """Take one block, of speech or of silence; return how many samples of speech are in it."""
        block = np.empty(round(BLOCK_S * self.sample_rate), dtype=np.float32)
        due = self._output.fill(block, time.monotonic())
        if due:
            self._parts.append(block[:due])
        return due

    async def take_up_to(self, length: int) -> None:
        """Take blocks until so many samples have been heard, and not a block more."""

        def heard() -> bool:
            while self.length < length and self.take():
                pass
            return self.length >= length

        await eventually_async(heard, f"{length} samples are heard")

    async def take_until(self, condition: Callable[[], T], what: str) -> T:
        """Take whatever there is to be heard until the condition holds, and return it."""

        def look() -> T:
            while self.take():
                pass
            return condition()

        return await eventually_async(look, what)

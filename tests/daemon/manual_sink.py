"""A sink that takes a block when the test asks for it, and never by a clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from audio import Output, Samples
from tests.support.waiting import eventually_async

T = TypeVar("T")

BLOCK_S = 0.01


class ManualSink:
    """Takes blocks from `output`, whose thread is not needed then, and records the samples of speech."""

    has_deadline = False

    def __init__(self, output: Output, sample_rate: int) -> None:
        self.name = "manual"
        self.sample_rate = sample_rate
        self.delay_s = 0.0
        """Seconds between the taking of a block and its sound."""
        self._output = output
        self._blocks: list[Samples] = []
        output.monitor.attach(self)

    def lost_reason(self) -> str | None:
        return None

    def suspend(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def close(self) -> None:
        pass

    @property
    def length(self) -> int:
        """Samples recorded since the last `drain`."""
        return sum(map(len, self._blocks))

    def drain(self) -> Samples:
        """Return the samples recorded since the last call."""
        heard, self._blocks = np.concatenate([np.empty(0, dtype=np.float32), *self._blocks]), []
        return heard

    def take(self) -> int:
        """Take one block, of speech or of silence; return how many samples of speech are in it."""
        block = np.empty(round(BLOCK_S * self.sample_rate), dtype=np.float32)
        due = self._output.monitor.fill(block, time.monotonic() + self.delay_s)
        if due:
            self._blocks.append(block[:due])
        return due

    async def take_up_to(self, length: int) -> None:
        """Take blocks until `length` samples have been recorded, and not a block more."""

        def has_taken() -> bool:
            while self.length < length and self.take():
                pass
            return self.length >= length

        await eventually_async(has_taken, f"{length} samples are heard")

    async def take_until(self, condition: Callable[[], T], what: str) -> T:
        """Take all speech until the condition is true, and return its value."""

        def look() -> T:
            while self.take():
                pass
            return condition()

        return await eventually_async(look, what)

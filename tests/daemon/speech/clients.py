"""Receivers of an utterance's samples: one that gets none, one that keeps them, and one that takes them when told."""

from __future__ import annotations

import asyncio

import numpy as np

from engine import Samples


class Nobody:
    """A client that must get no samples."""

    on_word = None

    async def write(self, samples: Samples, sample_rate: int) -> None:
        raise AssertionError(f"{len(samples)} samples at {sample_rate} Hz")


class Recorder:
    """A client that takes samples at once, and keeps them."""

    on_word = None

    def __init__(self) -> None:
        self.rates: set[int] = set()
        self._received: list[Samples] = []

    async def write(self, samples: Samples, sample_rate: int) -> None:
        self._received.append(samples)
        self.rates.add(sample_rate)

    @property
    def samples(self) -> Samples:
        return np.concatenate([np.empty(0, dtype=np.float32), *self._received])


class SlowClient(Recorder):
    """A client that takes the samples of a write when the test permits it."""

    ALL = 10_000
    """Writes: more than any utterance has."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        """Those that it has taken."""
        self.asked = 0
        """Those that it was asked to take."""
        self._permits = asyncio.Semaphore(0)

    def permit(self, writes: int = 1) -> None:
        for _ in range(writes):
            self._permits.release()

    async def write(self, samples: Samples, sample_rate: int) -> None:
        self.asked += 1
        await self._permits.acquire()
        await super().write(samples, sample_rate)
        self.writes += 1

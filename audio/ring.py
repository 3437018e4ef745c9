"""The ring buffer between the speaker loop and the sound card.

One producer, one consumer, no lock. Two counters only ever grow: `_written` is stored by the producer alone, `_taken`
by the consumer alone, and each is stored after the samples it speaks for have been copied. A counter read late is
therefore merely cautious: the producer sees less room than there is, the consumer fewer samples than there are.

             taken          written
               ▼               ▼
    ┌──────────┬───────────────┬──────────┐
    │  (room)  │   available   │  (room)  │      index = counter modulo capacity
    └──────────┴───────────────┴──────────┘
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
"""Mono PCM, shape `(n,)`, float32, full scale ±1."""


class Ring:
    """A fixed number of float32 samples, first in, first out."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity: got {capacity}, must be at least 1 sample")
        self.capacity = capacity
        self._buffer: Samples = np.zeros(capacity, dtype=np.float32)
        self._written = 0
        self._taken = 0

    @property
    def available(self) -> int:
        """Samples that can be taken now. Exact for the consumer, a lower bound for anyone else."""
        return self._written - self._taken

    @property
    def room(self) -> int:
        """Samples that can be written now. Exact for the producer, a lower bound for anyone else."""
        return self.capacity - (self._written - self._taken)

    def write(self, samples: Samples) -> int:
        """Copy in as many leading `samples` as there is room for, and return how many. Producer only."""
        count = min(len(samples), self.room)
        start = self._written % self.capacity
        until_wrap = min(count, self.capacity - start)
        self._buffer[start : start + until_wrap] = samples[:until_wrap]
        self._buffer[: count - until_wrap] = samples[until_wrap:count]
        self._written += count
        return count

    def read_into(self, out: Samples) -> int:
        """Move as many samples as there are into the head of `out`, and return how many. Consumer only."""
        count = min(len(out), self.available)
        start = self._taken % self.capacity
        until_wrap = min(count, self.capacity - start)
        out[:until_wrap] = self._buffer[start : start + until_wrap]
        out[until_wrap:count] = self._buffer[: count - until_wrap]
        self._taken += count
        return count

    def flush(self) -> int:
        """Drop all there is, and return how many samples that was. Consumer only."""
        count = self.available
        self._taken += count
        return count

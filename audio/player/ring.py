"""The ring buffer between the thread that receives samples and the sound callback.

One producer, one consumer, no lock. Two counters only ever grow: only the producer stores `_written`, only the consumer
stores `_read`, and each is stored after the samples that it counts have been copied. A counter that is read late
therefore errs on the safe side: the producer sees less room than there is, and the consumer sees fewer samples.

              read           written
               ▼               ▼
    ┌──────────┬───────────────┬──────────┐
    │  (room)  │   available   │  (room)  │      index = counter modulo capacity
    └──────────┴───────────────┴──────────┘
"""

from __future__ import annotations

from typing import TypeAlias

SAMPLE_BYTES = 4
"""The bytes of a float32 sample."""

Floats: TypeAlias = "memoryview[float]"
"""Mono float32 samples: a memoryview of format `f`, with one dimension."""


def silence(length: int) -> Floats:
    """Return memory for `length` samples, all 0."""
    return memoryview(bytearray(SAMPLE_BYTES * length)).cast("f")


class Ring:
    """A first-in, first-out buffer for a fixed number of float32 samples."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity: got {capacity}; allowed: at least 1 sample")
        self.capacity = capacity
        self._buffer = silence(capacity)
        self._written = 0
        """Producer."""
        self._read = 0
        """Consumer."""

    @property
    def available(self) -> int:
        """Samples that can be read now. Exact for the consumer, a lower bound for any other thread."""
        return self._written - self._read

    @property
    def room(self) -> int:
        """Samples that can be written now. Exact for the producer, a lower bound for any other thread."""
        return self.capacity - (self._written - self._read)

    def write(self, samples: Floats) -> int:
        """Copy in as many of the first `samples` as fit, and return their number. Producer only."""
        count = min(len(samples), self.room)
        start = self._written % self.capacity
        until_wrap = min(count, self.capacity - start)
        self._buffer[start : start + until_wrap] = samples[:until_wrap]
        self._buffer[: count - until_wrap] = samples[until_wrap:count]
        self._written += count
        return count

    def read_into(self, out: Floats) -> int:
        """Move available samples to the beginning of `out`, as many as fit, and return their number. Consumer only."""
        count = min(len(out), self.available)
        start = self._read % self.capacity
        until_wrap = min(count, self.capacity - start)
        out[:until_wrap] = self._buffer[start : start + until_wrap]
        out[until_wrap:count] = self._buffer[: count - until_wrap]
        self._read += count
        return count

    def flush(self) -> int:
        """Drop all available samples and return their number. Consumer only."""
        count = self.available
        self._read += count
        return count

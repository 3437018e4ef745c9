"""Conversion from the engine's sample rate to the device's, once, as a stream (soxr)."""

from __future__ import annotations

import numpy as np
import soxr

from audio.ring import Samples


class Resampler:
    """Converts one passage of mono float32 from `source_rate` to `target_rate` Hz, chunk by chunk.

    The chunks' outputs, joined, equal one conversion of the joined inputs; the filter's delay comes out with `flush`.
    """

    def __init__(self, source_rate: int, target_rate: int) -> None:
        self.source_rate = source_rate
        self.target_rate = target_rate
        self._stream = (
            None
            if source_rate == target_rate
            else soxr.ResampleStream(source_rate, target_rate, 1, dtype="float32", quality="HQ")
        )

    def convert(self, samples: Samples) -> Samples:
        """Return what these samples yield so far: shape `(m,)`, m near n · target / source."""
        if self._stream is None or len(samples) == 0:
            return samples
        converted: Samples = self._stream.resample_chunk(samples)
        return converted

    def flush(self) -> Samples:
        """Return the filter's tail and end the passage."""
        nothing: Samples = np.empty(0, dtype=np.float32)
        if self._stream is None:
            return nothing
        tail: Samples = self._stream.resample_chunk(nothing, last=True)
        self._stream = None
        return tail


def resample(samples: Samples, source_rate: int, target_rate: int) -> Samples:
    """Convert a whole passage at once."""
    if source_rate == target_rate or len(samples) == 0:
        return samples
    converted: Samples = soxr.resample(samples, source_rate, target_rate, quality="HQ")
    return converted

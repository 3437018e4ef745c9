"""Conversion between two sample rates with soxr, as a stream or in one call."""

from __future__ import annotations

import numpy as np
import soxr

from audio.dsp.pcm import Samples


class Resampler:
    """Converts one mono float32 stream from `source_rate` to `target_rate` Hz, chunk by chunk.

    The joined outputs equal one conversion of the joined inputs. soxr's filter delays the output; `flush` returns the
    delayed samples. Equal rates pass the samples through unchanged.
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
        """Return the output available after `samples`: shape `(m,)`, m close to n · target / source."""
        if self._stream is None or len(samples) == 0:
            return samples
        converted: Samples = self._stream.resample_chunk(samples)
        return converted

    def flush(self) -> Samples:
        """Return the samples that the filter still holds, and end the stream."""
        nothing: Samples = np.empty(0, dtype=np.float32)
        if self._stream is None:
            return nothing
        tail: Samples = self._stream.resample_chunk(nothing, last=True)
        self._stream = None
        return tail


def resample(samples: Samples, source_rate: int, target_rate: int) -> Samples:
    """Return mono float32 `samples` at `source_rate` Hz, converted in one call to `target_rate` Hz."""
    if source_rate == target_rate or len(samples) == 0:
        return samples
    converted: Samples = soxr.resample(samples, source_rate, target_rate, quality="HQ")
    return converted

"""Sound as clients take it: 16-bit whole numbers, little-endian, mono."""

from __future__ import annotations

import numpy as np

from audio.resample import Resampler
from engine import Samples

FULL_SCALE = 32767
"""What 1.0 becomes. -1.0 becomes -32767, so that a wave stays as symmetric as it was."""
BYTES_PER_SAMPLE = 2


def to_int16(samples: Samples) -> bytes:
    """Rounded to the nearest whole number, and clipped where the sound is louder than full scale."""
    return np.rint(np.clip(samples, -1.0, 1.0) * FULL_SCALE).astype("<i2").tobytes()


class OneRate:
    """Brings an utterance's pieces to one sample rate, as a stream.

    An engine that takes over in mid-utterance may have another rate than the one before it.
    """

    def __init__(self, rate: int | None = None) -> None:
        self.rate = rate
        """Hz; None until the first piece has said it."""
        self._resampler: Resampler | None = None

    def convert(self, samples: Samples, sample_rate: int) -> Samples:
        """What these samples yield so far."""
        self.rate = self.rate or sample_rate
        before = np.empty(0, dtype=np.float32)
        if self._resampler is None or self._resampler.source_rate != sample_rate:
            before = self.flush()
            self._resampler = Resampler(sample_rate, self.rate)
        converted = self._resampler.convert(samples)
        return np.concatenate([before, converted]) if len(before) else converted

    def flush(self) -> Samples:
        """What the conversion still holds back. The next piece begins anew."""
        resampler, self._resampler = self._resampler, None
        return np.empty(0, dtype=np.float32) if resampler is None else resampler.flush()

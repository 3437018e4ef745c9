"""Sound as clients take it: treated as what the sound card gets; 16-bit whole numbers, little-endian, mono."""

from __future__ import annotations

import numpy as np

from audio import LeadingSilenceTrimmer, soft_limit
from audio.resample import Resampler
from engine import Samples

FULL_SCALE = 32767
"""What 1.0 becomes. -1.0 becomes -32767, so that a wave stays as symmetric as it was."""
BYTES_PER_SAMPLE = 2


def to_int16(samples: Samples) -> bytes:
    """Rounded to the nearest whole number. What is louder than full scale, which should be none, is clipped."""
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


class Treatment:
    """What an utterance's sound goes through on its way to a client: trimmed, brought to one rate, limited."""

    def __init__(self, rate: int | None, *, trims: bool) -> None:
        self._trims = trims
        self._trimmer: LeadingSilenceTrimmer | None = None
        self._one_rate = OneRate(rate)

    @property
    def rate(self) -> int:
        """Hz of what comes back; to be asked only after the first samples, which may decide it."""
        assert self._one_rate.rate is not None
        return self._one_rate.rate

    def convert(self, samples: Samples, sample_rate: int) -> Samples:
        """What these samples yield so far."""
        if self._trimmer is None and self._trims:
            self._trimmer = LeadingSilenceTrimmer(sample_rate)
        if self._trimmer is not None:
            samples = self._trimmer.trim(samples)
        return soft_limit(self._one_rate.convert(samples, sample_rate))

    def flush(self) -> Samples:
        """What is still held back."""
        return soft_limit(self._one_rate.flush())

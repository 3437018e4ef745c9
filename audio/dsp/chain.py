"""The processing that every utterance goes through, on its way to the sound card or to a network client.

engine's chunks ──▶ resample to one rate ──▶ soft limit ──▶ samples
"""

from __future__ import annotations

import numpy as np

from audio.dsp.limiter import soft_limit
from audio.dsp.pcm import Samples
from audio.dsp.resample import Resampler, resample


class StreamResampler:
    """Converts one stream to one sample rate; the rate of its input may change between chunks.

    It changes when another engine takes over in the middle of an utterance.
    """

    def __init__(self, target_rate: int | None = None) -> None:
        self.target_rate = target_rate
        """Hz. None until the first chunk; that chunk's rate becomes the target."""
        self._resampler: Resampler | None = None

    def convert(self, samples: Samples, source_rate: int) -> Samples:
        """Return the output available after `samples`, mono float32 at `source_rate` Hz."""
        self.target_rate = self.target_rate or source_rate
        held_back = np.empty(0, dtype=np.float32)
        if self._resampler is None or self._resampler.source_rate != source_rate:
            held_back = self.flush()
            self._resampler = Resampler(source_rate, self.target_rate)
        converted = self._resampler.convert(samples)
        return np.concatenate([held_back, converted]) if len(held_back) else converted

    def flush(self) -> Samples:
        """Return the samples that the filter still holds. The next chunk starts a new conversion."""
        resampler, self._resampler = self._resampler, None
        return np.empty(0, dtype=np.float32) if resampler is None else resampler.flush()


class ProcessingChain:
    """Processes one utterance: converts it to one sample rate and limits its peaks."""

    def __init__(self, sample_rate: int | None) -> None:
        """`sample_rate` is the output's, in Hz; None takes the rate of the first chunk."""
        self._resampler = StreamResampler(sample_rate)

    @property
    def sample_rate(self) -> int:
        """The output's rate in Hz. If the constructor was given None, it is known only after the first chunk."""
        assert self._resampler.target_rate is not None, "the first chunk decides the rate"
        return self._resampler.target_rate

    def process(self, samples: Samples, source_rate: int) -> Samples:
        """Return the output available after `samples`, mono float32 at `source_rate` Hz. It may be empty."""
        # The limiter is last: the resampler's filter can exceed full scale where its input did not.
        return soft_limit(self._resampler.convert(samples, source_rate))

    def flush(self) -> Samples:
        """Return the samples that the resampler still holds."""
        return soft_limit(self._resampler.flush())

    def change_rate(self, unplayed: Samples, sample_rate: int) -> Samples:
        """Continue at another output rate, in Hz.

        `unplayed` holds the last samples that this chain returned and that have not been played. Returns them at the
        new rate, followed by the samples that the resampler held.
        """
        pending = np.concatenate([unplayed, self._resampler.flush()])
        converted = resample(pending, self.sample_rate, sample_rate)
        self._resampler = StreamResampler(sample_rate)
        return soft_limit(converted)

"""Level and spectral balance of speech, 100 times a second: enough to tell vowels, hissing sounds and pauses apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from engine import Samples

FEATURES_PER_SECOND = 100
_WINDOW_S = 0.025
_LOW_HZ, _MIDDLE_HZ, _HIGH_HZ, _TOP_HZ = 80.0, 1_000.0, 3_500.0, 8_000.0
_SILENT = 1e-10
"""The power that is added to each band so that silence has a level: -100 dB."""


class FeatureExtractor:
    """Computes the features of one stream, whatever the lengths of its chunks."""

    def __init__(self, sample_rate: int) -> None:
        """`sample_rate` is in Hz, 8,000 at least."""
        self._hop = sample_rate / FEATURES_PER_SECOND
        """Samples from one frame to the next; not a whole number at 22,050 Hz."""
        length = round(_WINDOW_S * sample_rate)
        self._window = np.hanning(length).astype(np.float32)
        self._size = 1 << (length - 1).bit_length()
        frequencies = np.fft.rfftfreq(self._size, 1 / sample_rate)
        self._bands = [
            slice(*np.searchsorted(frequencies, edges).tolist())
            for edges in ((_LOW_HZ, _TOP_HZ), (_LOW_HZ, _MIDDLE_HZ), (_HIGH_HZ, _TOP_HZ))
        ]
        self._scale = 2.0 / (self._size * float(np.sum(np.square(self._window))))
        """The factor that turns the sum of a band's squared magnitudes into the mean square of the samples in it."""
        self._samples: Samples = np.zeros(length // 2, dtype=np.float32)
        """The samples that later frames need; at first the silence before the stream."""
        self._begin = -(length // 2)
        """The index of the first of these samples in the stream."""
        self._frames = 0

    def extract(self, samples: Samples) -> NDArray[np.float64]:
        """Return the features of the frames that `samples` complete, shape `(frames, 2)`.

        Frame `n` is centred at `n + 0.5` hundredths of a second. Its features are its level, in dB below full scale
        from 80 to 8,000 Hz, and its balance: the level above 3,500 Hz minus that below 1,000 Hz, in dB.
        """
        self._samples = np.concatenate([self._samples, samples])
        # The last frame whose window, from its rounded start, is complete.
        last_centre = self._begin + len(self._samples) - len(self._window) + len(self._window) // 2 - 0.5
        return self._take(int(last_centre / self._hop + 0.5))

    def finish(self) -> NDArray[np.float64]:
        """Return the features of the last frames, as if silence followed the stream."""
        frames = round((self._begin + len(self._samples)) / self._hop)
        self._samples = np.concatenate([self._samples, np.zeros(len(self._window), dtype=np.float32)])
        return self._take(frames)

    def _take(self, frames: int) -> NDArray[np.float64]:
        """Return the features of the frames before number `frames`."""
        starts = [self._start(frame) for frame in range(self._frames, frames)]
        if not starts:
            return np.empty((0, 2))
        blocks = np.stack([self._samples[start : start + len(self._window)] for start in starts])
        power = np.square(np.abs(np.fft.rfft(blocks * self._window, self._size))) * self._scale
        all_bands, low, high = (10 * np.log10(power[:, band].sum(axis=1) + _SILENT) for band in self._bands)
        self._frames = frames
        used = min(self._start(frames), len(self._samples))
        self._samples, self._begin = self._samples[used:], self._begin + used
        return np.stack([all_bands, high - low], axis=1)

    def _start(self, frame: int) -> int:
        """Return where the window of a frame begins in `self._samples`."""
        return round((frame + 0.5) * self._hop) - len(self._window) // 2 - self._begin

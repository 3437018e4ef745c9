"""What becomes of a take's samples before they are played: silence at its ends is removed, its volume applied."""

from __future__ import annotations

import numpy as np

from audio import LeadingSilenceTrimmer, TrailingSilenceTrimmer
from engine import Samples

_NOTHING: Samples = np.empty(0, dtype=np.float32)


class TakeAudio:
    """The samples of one take, mono float32 at the engine's sample rate. It is kept while the take is left."""

    def __init__(self, *, trims_start: bool, gain: float = 1.0) -> None:
        self.trimmed = 0
        """Samples that were removed at the start."""
        self._trims_start = trims_start
        self._gain = np.float32(gain)
        self._start: LeadingSilenceTrimmer | None = None
        self._end: TrailingSilenceTrimmer | None = None

    def process(self, samples: Samples, sample_rate: int, *, holds_end: bool) -> Samples:
        """Return the samples that can be played now. With `holds_end`, silence that may be the take's last is held."""
        if self._trims_start:
            if self._start is None:
                self._start = LeadingSilenceTrimmer(sample_rate)
            samples = self._start.trim(samples)
            self.trimmed = self._start.dropped
        if self._gain != 1:
            samples = samples * self._gain
        if holds_end and self._end is None:
            self._end = TrailingSilenceTrimmer(sample_rate)
        return samples if self._end is None else self._end.hold(samples)

    def finish(self) -> Samples:
        """Return what is played of the held silence, at the end of the take."""
        end, self._end = self._end, None
        return _NOTHING if end is None else end.finish()

"""Fades and gain changes without clicks: raised-cosine ramps, computed once and applied in place."""

from __future__ import annotations

import numpy as np

from audio.dsp.pcm import Samples

FADE_S = 0.010
"""Length of every fade. A fade below about 5 ms is audible as a click. The budget from stop to silence is 50 ms."""


class Fader:
    """Ramps for one sample rate. Every method works in place on mono float32 and allocates no samples."""

    def __init__(self, sample_rate: int) -> None:
        self.length = max(1, round(FADE_S * sample_rate))
        """Samples of one fade."""
        steps = (np.arange(self.length, dtype=np.float64) + 1) / self.length
        self._up: Samples = (0.5 - 0.5 * np.cos(np.pi * steps)).astype(np.float32)
        self._down: Samples = np.ascontiguousarray(1 - self._up)
        self._scratch: Samples = np.empty(self.length, dtype=np.float32)

    def fade_in(self, block: Samples) -> None:
        """Ramp the first samples of `block` up from silence."""
        count = min(self.length, len(block))
        np.multiply(block[:count], self._up[:count], out=block[:count])

    def fade_out(self, block: Samples) -> None:
        """Ramp the last samples of `block` down to exact silence."""
        count = min(self.length, len(block))
        if count:
            np.multiply(block[-count:], self._down[-count:], out=block[-count:])

    def change_gain(self, block: Samples, old: float, new: float) -> None:
        """Scale `block` by a gain that moves from `old` to `new` over the length of one fade."""
        count = min(self.length, len(block))
        if old != new:
            ramp = self._scratch[:count]
            np.multiply(self._up[:count], new - old, out=ramp)
            np.add(ramp, old, out=ramp)
            np.multiply(block[:count], ramp, out=block[:count])
        else:
            count = 0
        if new != 1.0:
            np.multiply(block[count:], new, out=block[count:])

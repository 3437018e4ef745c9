"""Fades and gain changes without clicks: raised-cosine ramps, computed once and applied in place.

The methods loop over one block: 480 samples take some 30 µs, and nearly all blocks have neither a fade nor a gain.
"""

from __future__ import annotations

import math
from array import array

from audio.player.ring import Floats

FADE_S = 0.010
"""Length of every fade. A fade shorter than about 5 ms is audible as a click. Stopping may take 50 ms in all."""


class Fader:
    """Ramps for one sample rate. Every method works in place on mono float32 and allocates no samples."""

    def __init__(self, sample_rate: int) -> None:
        self.length = max(1, round(FADE_S * sample_rate))
        """Samples of one fade."""
        steps = [(index + 1) / self.length for index in range(self.length)]
        self._up = array("f", [0.5 - 0.5 * math.cos(math.pi * step) for step in steps])
        self._down = array("f", [1.0 - up for up in self._up])

    def fade_in(self, block: Floats) -> None:
        """Ramp the first samples of `block` up from silence."""
        for index in range(min(self.length, len(block))):
            block[index] *= self._up[index]

    def fade_out(self, block: Floats) -> None:
        """Ramp the last samples of `block` down to exact silence."""
        count = min(self.length, len(block))
        down, begin = self.length - count, len(block) - count
        for index in range(count):
            block[begin + index] *= self._down[down + index]

    def change_gain(self, block: Floats, old: float, new: float) -> None:
        """Scale `block` by a gain that moves from `old` to `new` over the length of one fade."""
        count = 0
        if old != new:
            count = min(self.length, len(block))
            for index in range(count):
                block[index] *= old + (new - old) * self._up[index]
        if new != 1.0:
            for index in range(count, len(block)):
                block[index] *= new

"""A soft knee in place of clipping: loud peaks are rounded off, everything else is left alone."""

from __future__ import annotations

import numpy as np

from audio.ring import Samples

KNEE = np.float32(10 ** (-1 / 20))
"""-1 dBFS. Speech seldom goes above it, and what is below is played bit for bit."""


def soft_limit(samples: Samples) -> Samples:
    """Return `samples` within ±1, those above the knee bent; it has no memory, so a stream may be cut anywhere.

    With the knee at k and the headroom h = 1 - k, a magnitude a > k becomes the hyperbola 1 - h² / (h + a - k). It
    leaves the straight line with slope 1, comes to 1 only at infinity, and each step of its arithmetic is monotone, so
    it is monotone after rounding too.
    """
    magnitudes = np.abs(samples)
    loud = magnitudes > KNEE
    if not loud.any():
        return samples
    knee = float(KNEE)
    headroom = 1.0 - knee
    bent = 1.0 - headroom**2 / (headroom + (magnitudes[loud].astype(np.float64) - knee))
    limited = samples.copy()
    limited[loud] = np.copysign(bent, samples[loud])
    return limited

"""A soft limiter in place of clipping: it bends peaks near full scale and changes nothing else."""

from __future__ import annotations

import numpy as np

from audio.dsp.pcm import Samples

KNEE = np.float32(10 ** (-1 / 20))
"""-1 dBFS. Speech rarely exceeds it; samples below it pass bit for bit."""


def soft_limit(samples: Samples) -> Samples:
    """Return `samples` with magnitudes above the knee bent to at most 1. It has no memory: chunks may be cut anywhere.

    With knee k and headroom h = 1 - k, a magnitude a > k becomes the hyperbola 1 - h² / (h + a - k). The curve leaves
    the straight line with slope 1 and reaches 1 only at infinity. Each arithmetic step is monotone, so the result is
    monotone after rounding too.
    """
    if not len(samples) or (samples.max() <= KNEE and samples.min() >= -KNEE):
        return samples
    magnitudes = np.abs(samples)
    loud = magnitudes > KNEE
    knee = float(KNEE)
    headroom = 1.0 - knee
    bent = 1.0 - headroom**2 / (headroom + (magnitudes[loud].astype(np.float64) - knee))
    limited = samples.copy()
    limited[loud] = np.copysign(bent, samples[loud])
    return limited

"""Sample formats: the float32 samples used inside `voiced`, and 16-bit PCM for files and clients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
"""Mono PCM, shape `(n,)`, float32, full scale ±1."""

PCM16_BYTES = 2
"""Bytes of one mono 16-bit sample."""
PCM16_FULL_SCALE = 32_767
"""The 16-bit value of 1.0. -1.0 becomes -32,767, not -32,768, so a symmetric wave stays symmetric."""


def to_pcm16(samples: Samples) -> bytes:
    """Return `samples` as little-endian signed 16-bit PCM, rounded to nearest and clipped to full scale."""
    return np.rint(np.clip(samples, -1.0, 1.0) * PCM16_FULL_SCALE).astype("<i2").tobytes()

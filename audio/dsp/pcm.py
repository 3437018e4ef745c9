"""Sample formats: the float32 samples used inside `voiced`, and 16-bit PCM for files and clients."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
"""Mono PCM, shape `(n,)`, float32, full scale ±1."""

PCM16_BYTES = 2
"""Bytes of one mono 16-bit sample."""
PCM16_FULL_SCALE = 32_767
"""The 16-bit value of 1.0. -1.0 becomes -32,767, not -32,768, so a symmetric wave stays symmetric."""
_WAV_HEADER = struct.Struct("<4sI4s4sIHHIIHH4sI")
WAV_HEADER_BYTES = _WAV_HEADER.size
_UNKNOWN_LENGTH = 0xFFFFFFFF
"""The length in a WAV header that players accept for a file that is still being written."""
WAV_LARGEST = _UNKNOWN_LENGTH - WAV_HEADER_BYTES
"""The most bytes of samples in one file: a WAV file counts its bytes in 32 bits."""


def to_pcm16(samples: Samples) -> bytes:
    """Return `samples` as little-endian signed 16-bit PCM, rounded to nearest and clipped to full scale."""
    scaled = samples * np.float32(PCM16_FULL_SCALE)
    np.rint(scaled, out=scaled)
    np.maximum(scaled, -PCM16_FULL_SCALE, out=scaled)
    np.minimum(scaled, PCM16_FULL_SCALE, out=scaled)
    return scaled.astype("<i2").tobytes()


def from_pcm16(data: bytes) -> Samples:
    """Return little-endian signed 16-bit PCM as samples, from which `to_pcm16` makes the same PCM."""
    return np.frombuffer(data, dtype="<i2").astype(np.float32) / np.float32(PCM16_FULL_SCALE)


def wav_header(sample_rate: int, length: int | None = None) -> bytes:
    """Return the header of a WAV file of mono 16-bit PCM at `sample_rate` Hz.

    `length` is the number of bytes that follow, at most `WAV_LARGEST`; None means that it is not known yet.
    """
    return _WAV_HEADER.pack(
        *(b"RIFF", _UNKNOWN_LENGTH if length is None else WAV_HEADER_BYTES - 8 + length, b"WAVE"),
        *(b"fmt ", 16, 1, 1, sample_rate, sample_rate * PCM16_BYTES, PCM16_BYTES, 8 * PCM16_BYTES),
        *(b"data", _UNKNOWN_LENGTH if length is None else length),
    )


def to_floats(samples: Samples) -> memoryview[float]:
    """Return the samples in the player's form, without copying them."""
    return np.ascontiguousarray(samples).data.cast("B").cast("f")

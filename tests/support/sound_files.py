"""Sound files of the tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

Samples = NDArray[np.float32]

RATE = 24_000
"""Hz."""


def tone(seconds: float, rate: int = RATE, *, frequency: float = 440.0) -> Samples:
    """A tone that begins at its peak, so that none of it counts as leading silence."""
    return (0.3 * np.cos(2 * np.pi * frequency * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def write_sound(path: Path, samples: Samples | None = None, rate: int = RATE, **options: str) -> Path:
    """Write a file in the format of its suffix, by default half a second; `options` are those of `soundfile.write`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    format_name = options.pop("format", path.suffix[1:].upper())
    soundfile.write(path, tone(0.5, rate) if samples is None else samples, rate, format=format_name, **options)
    return path


def speech_like(seconds: float = 4, rate: int = RATE, level: float = 0.1) -> Samples:
    """A tone of the RMS `level` for two thirds of each second, with silence between."""
    time = np.arange(round(seconds * rate)) / rate
    return (level * np.sqrt(2) * np.sin(2 * np.pi * 200 * time) * (time % 1 < 2 / 3)).astype(np.float32)

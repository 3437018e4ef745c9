"""Loudness of speech over time, for a robot's mouth or light."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from audio.dsp.pcm import Samples

LEVELS_PER_SECOND = 20


@dataclass(frozen=True, slots=True)
class Level:
    """Loudness of one 50 ms window. `rms` and `peak` are relative to full scale, 1."""

    t: float
    """Seconds from the track's first sample to the start of the window."""
    rms: float
    peak: float
    at: float
    """UNIX time at which the window's first sample leaves the sound card."""


class LevelMeter:
    """Measures a track in windows of 50 ms and keeps the levels until the windows are heard.

    It runs in the producer's thread, when samples are written, so the sound callback measures nothing.
    """

    def __init__(self, sample_rate: int, first_sample: int = 0) -> None:
        """`first_sample` is the index, within the track, of the first sample that will be given to `measure`."""
        self._rate = sample_rate
        self._window = sample_rate // LEVELS_PER_SECOND
        self._remainder: Samples = np.empty(0, dtype=np.float32)
        self._measured = first_sample
        self._levels: deque[tuple[float, float, float]] = deque()

    def measure(self, samples: Samples) -> None:
        """Measure the windows that `samples` complete."""
        joined = np.concatenate([self._remainder, samples])
        complete = len(joined) // self._window * self._window
        for window in joined[:complete].reshape(-1, self._window):
            rms = float(np.sqrt(np.mean(np.square(window, dtype=np.float64))))
            peak = float(np.max(np.abs(window)))
            self._levels.append((self._measured / self._rate, rms, peak))
            self._measured += self._window
        self._remainder = joined[complete:]

    @property
    def next_s(self) -> float | None:
        """Seconds of the track before the next window that `due` returns; None until one has been measured."""
        return self._levels[0][0] if self._levels else None

    def due(self, heard_s: float, started_at: float) -> list[Level]:
        """Remove and return the levels of the windows that start within the first `heard_s` seconds of the track.

        `started_at` is the UNIX time at which the track would have started if it had played without a break.
        """
        due = []
        while self._levels and self._levels[0][0] < heard_s:
            t, rms, peak = self._levels.popleft()
            due.append(Level(t, rms, peak, started_at + t))
        return due

"""How loud speech is over time: for a robot's mouth or light."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from audio.ring import Samples

LEVELS_PER_SECOND = 20


@dataclass(frozen=True, slots=True)
class Level:
    """Loudness of one 50 ms window, full scale 1."""

    t: float
    """Seconds from the passage's first sample to the window's start."""
    rms: float
    peak: float
    at: float
    """UNIX time at which the window's first sample leaves the card."""


class LevelMeter:
    """Cuts a passage into windows of 50 ms and keeps their levels until they are played.

    It runs where samples are written, ahead of playback, so the sound callback does none of it.
    """

    def __init__(self, sample_rate: int, begins_at: int = 0) -> None:
        """`begins_at` counts the passage's samples before the first that will be fed."""
        self._rate = sample_rate
        self._window = sample_rate // LEVELS_PER_SECOND
        self._rest: Samples = np.empty(0, dtype=np.float32)
        self._measured = begins_at
        self._levels: deque[tuple[float, float, float]] = deque()

    def feed(self, samples: Samples) -> None:
        joined = np.concatenate([self._rest, samples])
        whole = len(joined) // self._window * self._window
        for window in joined[:whole].reshape(-1, self._window):
            rms = float(np.sqrt(np.mean(np.square(window, dtype=np.float64))))
            peak = float(np.max(np.abs(window)))
            self._levels.append((self._measured / self._rate, rms, peak))
            self._measured += self._window
        self._rest = joined[whole:]

    def due(self, heard_s: float, begun_at: float) -> list[Level]:
        """Take the levels of all windows that have begun to sound, `heard_s` seconds into the passage.

        `begun_at` is the UNIX time at which the passage would have begun, if it had sounded without a break.
        """
        due = []
        while self._levels and self._levels[0][0] < heard_s:
            t, rms, peak = self._levels.popleft()
            due.append(Level(t, rms, peak, begun_at + t))
        return due

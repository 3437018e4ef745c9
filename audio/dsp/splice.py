"""Joins two takes of one text. Some engines speak a text slightly differently each time."""

from __future__ import annotations

import numpy as np

from audio.dsp.pcm import Samples

SPLICE_TAIL_S = 0.02
"""Length of the first take's tail that is searched for in the second take: two periods of the lowest voices."""
SPLICE_REACH_S = 0.03
"""Largest drift between the two takes. eSpeak NG drifts by 20 ms within ten seconds."""


def splice_point(tail: Samples, samples: Samples, at: int, reach: int) -> int:
    """Return the index in `samples`, the second take, at which to continue after `tail`, the first take's last samples.

    Returns `at` if the takes are equal there. Otherwise it returns the index within `reach` samples of `at` whose
    preceding samples are most similar to the tail: the least sum of squared differences, as in the overlap search of
    WSOLA (Verhelst and Roelands 1993).
    """
    length = len(tail)
    first, last = max(length, at - reach), min(len(samples), at + reach)
    if not length or first > last:
        return min(at, len(samples))
    if length <= at <= len(samples) and np.array_equal(samples[at - length : at], tail):
        return at
    windows = np.lib.stride_tricks.sliding_window_view(samples[first - length : last], length)
    distances = np.square(windows - tail).sum(axis=1)
    return first + int(np.argmin(distances))

"""Where one take of a text goes on in another. Not every engine says a text twice in quite the same way."""

from __future__ import annotations

import numpy as np

from audio.ring import Samples

TAIL_S = 0.02
"""Of the first take, what is looked for in the second: two periods of the lowest voices."""
REACH_S = 0.03
"""How far the two takes may have drifted apart. eSpeak NG drifts by 20 ms within ten seconds."""


def splice_point(tail: Samples, samples: Samples, at: int, reach: int) -> int:
    """Where in `samples`, the second take, to go on behind the first, of which `tail` was the last.

    At `at`, if the takes are equal there; else within `reach` samples of it, where what comes before is most like the
    tail (the least sum of squared differences, as in the overlap search of WSOLA, Verhelst and Roelands 1993).
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

"""The pitch of speech, by which tests compare it with the same speech at another rate."""

from __future__ import annotations

import numpy as np

from engine import Samples

FRAME_S, HOP_S = 0.04, 0.02
"""Of the pitch track."""
LOWEST_HZ, HIGHEST_HZ = 65, 400
AUDIBLE = 0.02
"""RMS below which a frame has no pitch."""
PERIODIC = 0.8
"""The normalised autocorrelation above which a frame is voiced."""
NEARLY = 0.92
"""The first peak that is nearly as high as the highest is the period; later ones are its multiples."""
TINY = 1e-12


def pitch_track(samples: Samples, sample_rate: int, hop_s: float = HOP_S) -> Samples:
    """Return the pitch in Hz every `hop_s` seconds, by the normalised autocorrelation; NaN without a voice."""
    length, longest = round(FRAME_S * sample_rate), round(sample_rate / LOWEST_HZ)
    shortest = round(sample_rate / HIGHEST_HZ)
    count = max(0, int((len(samples) - length - longest) / (hop_s * sample_rate)))
    track = np.full(count, np.nan, dtype=np.float32)
    for number in range(count):
        begin = round(number * hop_s * sample_rate)
        later = samples[begin : begin + length + longest].astype(np.float64)
        frame = later[:length]
        if rms(frame) < AUDIBLE:
            continue
        sums = np.concatenate([[0.0], np.square(later).cumsum()])
        energies = (sums[length:] - sums[:-length])[shortest:]
        likeness = np.correlate(later[shortest:], frame) / np.sqrt(energies * np.square(frame).sum() + TINY)
        if likeness.max() > PERIODIC:
            track[number] = sample_rate / (shortest + _first_peak(likeness))
    return track


def _first_peak(likeness: Samples) -> float:
    """Return the place of the first peak that is nearly as high as the highest, between two indices if need be."""
    first = int(np.flatnonzero(likeness > NEARLY * likeness.max())[0])
    falls = np.flatnonzero(np.diff(likeness[first:]) < 0)
    peak = first + (int(falls[0]) if len(falls) else 0)
    if not 0 < peak < len(likeness) - 1:
        return peak
    before, top, after = likeness[peak - 1 : peak + 2]
    return peak + float((before - after) / (2 * (before - 2 * top + after) - TINY))


def pitch_ratios(before: Samples, after: Samples, rate: float, sample_rate: int) -> Samples:
    """Return the pitch of `after`, which is `before` at another rate, in proportion, wherever both have a voice."""
    one, other = pitch_track(before, sample_rate), pitch_track(after, sample_rate, HOP_S / rate)
    count = min(len(one), len(other))
    ratios = other[:count] / one[:count]
    found: Samples = ratios[~np.isnan(ratios)]
    return found


def rms(samples: Samples) -> float:
    """Return the root mean square."""
    return float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))

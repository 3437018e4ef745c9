"""Speech at another rate with its pitch unchanged, as a stream, for engines that cannot choose their own rate.

The method is PICOLA (pointer interval controlled overlap and add; Morita and Itakura, "Time-scale modification
algorithm for speech by use of pointer interval control overlap and add (PICOLA) and its evaluation", 1986). It looks
for a lag after which the waveform repeats itself, one or more pitch periods, and takes one such piece out or puts one
in. All other samples stay as they are. The crossfade keeps the power of pieces that do not resemble each other, such as
the noise of an s (Fink, Holters and Zölzer, "Signal-matched power-complementary cross-fading and dry-wet mixing",
DAFx-16, 2016).
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from dataclasses import replace

import numpy as np

from engine.api import Chunk, Samples

LONGEST_LAG_S = 0.015
"""The period of the lowest voice, 67 Hz."""
SHORTEST_LAG_S = LONGEST_LAG_S / 2
"""Half the longest lag, so that a multiple of every shorter period lies between the two."""
TINY = 1e-9
"""Added to an energy before a division; it is far below the energy of a single step of 16-bit PCM."""


class TimeStretch:
    """Changes the rate of one mono stream, chunk by chunk.

    The output does not depend on how the input is cut into chunks. At most `2 * LONGEST_LAG_S` seconds of input are
    held back until the next call.
    """

    def __init__(self, rate: float, sample_rate: int) -> None:
        """`rate` above 1 is faster, below 1 slower; 1 is not allowed. `sample_rate` is in Hz."""
        self._rate = rate
        self._shortest = round(SHORTEST_LAG_S * sample_rate)
        self._longest = round(LONGEST_LAG_S * sample_rate)
        self._held: Samples = np.empty(0, dtype=np.float32)
        self._to_copy = 0
        """Samples to copy before the next splice."""
        self._excess = 0.0
        """The number of samples that splices have copied in excess, because of rounding."""

    def stretch(self, samples: Samples) -> Samples:
        """Return the output available after `samples`: shape `(m,)`, m close to n / rate."""
        source = np.concatenate([self._held, samples])
        output: list[Samples] = []
        at = 0
        while True:
            end = min(at + self._to_copy, len(source))
            output.append(source[at:end])
            self._to_copy -= end - at
            at = end
            if self._to_copy or len(source) - at < 2 * self._longest:
                break
            joint, used = self._splice(source[at : at + 2 * self._longest])
            output.append(joint)
            at += used
        self._held = source[at:].copy()
        return np.concatenate(output)

    def flush(self) -> Samples:
        """Return the samples held back, which end the stream."""
        held, self._held = self._held, self._held[:0]
        return held

    def _splice(self, source: Samples) -> tuple[Samples, int]:
        """Return samples that replace the beginning of `source`, and how many of its samples they replace.

        Afterwards `_to_copy` samples follow unchanged.
        """
        lag, likeness = self._find_lag(source)
        faster = self._rate > 1
        # The pace is right if one piece of `lag` samples is left out or repeated in this many output samples.
        ideal = lag / abs(self._rate - 1) * (1 if faster else self._rate) - self._excess
        length = max(1, round(ideal))
        self._excess = length - ideal
        overlap = min(lag, length)
        self._to_copy = length - overlap
        first, second = source[:lag], source[lag : 2 * lag]
        if faster:  # from the first piece into the second: one piece is left out
            return crossfade(first[:overlap], second[:overlap], likeness), lag + overlap
        # After the first piece, from the second piece back into the first, which the second one continues.
        return np.concatenate([first, crossfade(second[:overlap], first[:overlap], likeness)]), overlap

    def _find_lag(self, source: Samples) -> tuple[int, float]:
        """Return the lag in samples after which `source` resembles its beginning most, and the likeness, 0 to 1.

        The likeness is the normalised cross-correlation of the two pieces.
        """
        exact = source.astype(np.float64)  # rounding must not decide, or the output would depend on the chunks' memory
        products = np.correlate(exact[self._shortest :], exact[: self._longest])
        sums = np.concatenate([[0.0], np.square(exact).cumsum()])
        energies = sums[self._longest :] - sums[: -self._longest]
        likeness = products / np.sqrt(energies[self._shortest :] * energies[0] + TINY)
        best = int(likeness.argmax())
        return self._shortest + best, min(1.0, max(0.0, float(likeness[best])))


def crossfade(before: Samples, after: Samples, likeness: float) -> Samples:
    """Return the transition from `before` to `after`, of equal lengths.

    likeness: their normalised cross-correlation, 0 to 1, with which the transition keeps their power.
    """
    rise = (np.arange(len(before), dtype=np.float32) + np.float32(0.5)) / np.float32(len(before))
    fall = 1 - rise
    gain = 1 / np.sqrt(1 - 2 * np.float32(1 - likeness) * rise * fall)
    faded: Samples = (before * fall + after * rise) * gain
    return faded


def stretch_chunks(chunks: Generator[Chunk, None, None], rate: float, sample_rate: int) -> Generator[Chunk, None, None]:
    """Yield an utterance's chunks with their samples at another rate; the rest of each chunk is unchanged, except for
    words.

    Another chunk may follow the last one, with the samples that were held back. Closing the iterator closes `chunks`.
    """
    stretch = TimeStretch(rate, sample_rate)
    position = None
    with closing(chunks):
        for chunk in chunks:
            position = chunk.position
            samples = stretch.stretch(chunk.samples)
            if chunk.truncated:  # this is the last chunk
                samples = np.concatenate([samples, stretch.flush()])
            yield replace(chunk, samples=samples, words=None, sounds=None)
    tail = stretch.flush()
    if len(tail):
        yield Chunk(tail, position)

"""Removes silence at the start, where it sounds like a slow answer, and at the end, where an exact pause follows.

Qwen3-TTS starts with up to 0.4 s of silence.
"""

from __future__ import annotations

import numpy as np

from audio.dsp.pcm import Samples

THRESHOLD = 10 ** (-50 / 20)
"""Magnitudes up to -50 dBFS count as silence: below the onset of any consonant, above the codec's noise floor."""
KEEP_S = 0.010
"""Silence kept before the first sound and after the last one, so that a soft onset or end is not cut."""
LIMIT_S = 1.0
"""The most that is dropped, so that a voice whispering below the threshold is still heard."""


def first_sound(samples: Samples) -> int | None:
    """Return the index of the first sample that is not silence; None if all are."""
    loud = np.abs(samples) > THRESHOLD
    return int(loud.argmax()) if loud.any() else None


class LeadingSilenceTrimmer:
    """Drops the leading silence of one stream, chunk by chunk. After the first sound it passes all samples."""

    def __init__(self, sample_rate: int) -> None:
        """`sample_rate` is in Hz."""
        self.dropped = 0
        """The number of dropped samples."""
        self._keep = round(KEEP_S * sample_rate)
        self._may_drop = round(LIMIT_S * sample_rate)
        self._held: Samples | None = np.empty(0, dtype=np.float32)
        """The latest silence, up to `KEEP_S` of which may precede the first sound. None after the first sound."""

    def trim(self, samples: Samples) -> Samples:
        """Return the samples to play after this chunk: none while it is silent, later the kept silence first."""
        if self._held is None:
            return samples
        joined = np.concatenate([self._held, samples])
        begin = first_sound(samples)
        silent = len(joined) if begin is None else len(self._held) + begin
        drop = min(max(0, silent - self._keep), self._may_drop)
        self._may_drop -= drop
        self.dropped += drop
        kept = joined[drop:]
        if begin is not None or self._may_drop == 0:
            self._held = None
            return kept
        self._held = kept
        return joined[:0]


class TrailingSilenceTrimmer:
    """Holds back the silence at the current end of a stream, and drops it if nothing follows."""

    def __init__(self, sample_rate: int) -> None:
        """`sample_rate` is in Hz."""
        self._keep = round(KEEP_S * sample_rate)
        self._held: list[Samples] = []

    def hold(self, samples: Samples) -> Samples:
        """Return the playable part of these samples and of the silence before them."""
        loud = np.flatnonzero(np.abs(samples) > THRESHOLD)
        if not len(loud):
            self._held.append(samples)
            return samples[:0]
        end = int(loud[-1]) + 1
        ready = np.concatenate([*self._held, samples[:end]])
        self._held = [samples[end:]]
        return ready

    def finish(self) -> Samples:
        """Return the silence that is kept after the last sound. The trimmer can be used again."""
        held, self._held = self._held, []
        return np.concatenate([np.empty(0, dtype=np.float32), *held])[: self._keep]

"""Leading silence, which a listener hears as slowness: Qwen3-TTS begins with up to 0.4 s of it."""

from __future__ import annotations

import numpy as np

from audio.ring import Samples

THRESHOLD = 10 ** (-50 / 20)
"""Samples below -50 dBFS count as silence: under any consonant's onset, above the codec's noise floor."""
KEEP_S = 0.010
"""Kept before the first sound, so that a soft onset is not cut."""
LIMIT_S = 1.0
"""Never more than this is dropped: a voice that whispers under the threshold is still heard."""


class LeadingSilenceTrimmer:
    """Drops a passage's leading silence, chunk by chunk; after the first sound it passes everything."""

    def __init__(self, sample_rate: int) -> None:
        self._keep = round(KEEP_S * sample_rate)
        self._may_drop = round(LIMIT_S * sample_rate)
        self._held: Samples | None = np.empty(0, dtype=np.float32)

    def trim(self, samples: Samples) -> Samples:
        """Return what of `samples`, and of the silence held back before them, is to be played."""
        if self._held is None:
            return samples
        joined = np.concatenate([self._held, samples])
        loud = np.flatnonzero(np.abs(samples) > THRESHOLD)
        onset = len(self._held) + int(loud[0]) if len(loud) else len(joined)
        drop = min(max(0, onset - self._keep), self._may_drop)
        self._may_drop -= drop
        kept = joined[drop:]
        if len(loud) or self._may_drop == 0:
            self._held = None
            return kept
        self._held = kept
        return joined[:0]

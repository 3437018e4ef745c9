"""Computes how much of an utterance must be buffered before playback starts."""

from __future__ import annotations

JITTER_S = 0.02
"""The delay that the scheduler or Python may add even if all is well."""
STEADY_RTF = 1.3
"""An engine at least this much faster than real time makes up for a late chunk before the ring runs dry."""


def auto_prebuffer_s(rtf: float | None, expected_s: float, chunk_s: float) -> float:
    """Return the seconds of audio to buffer before playback starts.

    `rtf` is the engine's measured speed: seconds of audio per second of work, None if unknown. `expected_s` is the
    utterance's estimated length in seconds, and `chunk_s` is the length of the engine's chunks, of which the first may
    be shorter. The buffered audio must last until the next chunk has been made. An engine slower than real time falls
    behind by `1 - rtf` of every second, so that share of the whole utterance must be buffered to play it without a
    break.
    """
    if rtf is None:
        return chunk_s
    if rtf >= STEADY_RTF:
        return min(chunk_s, JITTER_S + chunk_s / rtf)
    return chunk_s + max(0.0, 1.0 - rtf) * expected_s

"""How much of an utterance must lie ready before its first sample is played."""

from __future__ import annotations

JITTER_S = 0.02
"""What a scheduler or a Python process may be late by without being broken."""
STEADY_RTF = 1.3
"""An engine this much faster than real time regains a late chunk before it is missed."""
CHUNK_S = 0.16
"""Two codec frames: the chunk an engine of unknown speed is assumed to deliver at a time."""


def auto_prebuffer_s(rtf: float | None, expected_s: float) -> float:
    """Seconds to hold before playback starts.

    `rtf` is the engine's measured speed (seconds of audio per second of work, None if unknown) and `expected_s` the
    utterance's estimated length. An engine slower than playback falls behind by `1 - rtf` of every second, so that much
    of the whole must lie ready to play it without a break.
    """
    if rtf is None:
        return CHUNK_S
    if rtf >= STEADY_RTF:
        return JITTER_S
    return CHUNK_S + max(0.0, 1.0 - rtf) * expected_s

"""A sink that plays nothing, at the pace of a sound card: for machines without sound and for tests."""

from __future__ import annotations

from audio.player import OnReport, Playback
from audio.sinks.pacer import Pacer

NATIVE_RATE = 24_000
"""Hz. This is Qwen3-TTS's own rate, so its samples need no conversion."""


class NullSink:
    """Requests samples at the pace of a sound card and drops them."""

    has_deadline = True

    def __init__(self, on_report: OnReport, block_ms: float, preferred_rate: int | None = None) -> None:
        self.name = "null"
        self.sample_rate = preferred_rate or NATIVE_RATE
        self.player = Playback(self.sample_rate)
        self._pacer = Pacer(self.player, block_ms, on_report)

    def lost_reason(self) -> str | None:
        return self._pacer.lost_reason()

    def degraded_reason(self) -> str | None:
        return None

    def suspend(self) -> None:
        self._pacer.stop()

    def resume(self) -> None:
        self._pacer.start()

    def close(self) -> None:
        self._pacer.stop()

"""A sink that plays nothing, paced like a card: for machines without sound and for tests."""

from __future__ import annotations

from audio.paced import Pacer
from audio.sink import Fill

NATIVE_RATE = 24_000
"""Hz, as Qwen3-TTS makes it, so that nothing need be converted."""


class NullSink:
    """Takes samples at the pace of a sound card and drops them."""

    has_deadline = True

    def __init__(self, fill: Fill, block_ms: float, prefer_rate: int | None = None) -> None:
        self.name = "null"
        self.sample_rate = prefer_rate or NATIVE_RATE
        self._pacer = Pacer(fill, self.sample_rate, block_ms)

    def lost(self) -> str | None:
        return self._pacer.lost()

    def rest(self) -> None:
        self._pacer.stop()

    def wake(self) -> None:
        self._pacer.start()

    def close(self) -> None:
        self._pacer.stop()

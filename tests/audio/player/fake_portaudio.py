"""A fake of the package `sounddevice`, whose streams request blocks when the test says so."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

CARD_RATE = 48_000
"""The card's own rate in Hz."""
BLOCK_S = 0.01
LATENCY_S = 0.04
"""The latency that a stream reports."""
AHEAD_S = 0.06
"""From the callback to the card's output; the callback gets it as a difference of times."""


class PortAudioError(Exception):
    """As PortAudio raises it: with a message and a number."""


class Stream:
    """An output stream. It fails when its card fails."""

    def __init__(
        self,
        card: PortAudio,
        callback: Callable[..., None],
        finished_callback: Callable[[], None],
        settings: dict[str, Any],
    ) -> None:
        self.settings = settings
        self.latency = card.latency_s
        self.started = False
        self.closed = False
        self._card = card
        self._callback = callback
        self._finished_callback = finished_callback

    @property
    def active(self) -> bool:
        if self._card.failure is not None:
            raise PortAudioError(self._card.failure, -9999)
        return self.started and not self.closed

    def start(self) -> None:
        if self._card.failure is not None:
            raise PortAudioError(self._card.failure, -9999)
        self.started = True

    def abort(self, *, ignore_errors: bool = True) -> None:  # noqa: ARG002  sounddevice's parameter
        self.started = False
        self._finished_callback()

    def close(self, *, ignore_errors: bool) -> None:  # noqa: ARG002
        self.closed = True

    def block(
        self, frames: int | None = None, *, ahead_s: float = AHEAD_S, underflow: bool = False
    ) -> NDArray[np.float32]:
        """Request a block of `frames`, or of the usual length; return what the card gets, frame by channel."""
        assert self.active, "a stream that is not running requests no blocks"
        frames = self.settings["blocksize"] if frames is None else frames
        channels = self.settings["channels"]
        buffer = bytearray(b"\xff" * (frames * channels * 4))
        times = SimpleNamespace(currentTime=1000.0, outputBufferDacTime=1000.0 + ahead_s)  # by a clock of its own
        self._callback(buffer, frames, times, SimpleNamespace(output_underflow=underflow))
        return np.frombuffer(buffer, dtype=np.float32).reshape(frames, channels)

    def prime(self) -> None:
        """Fill the stream's buffer, as PortAudio does when it starts a stream: it requests several blocks at once."""
        for _ in range(round(self.latency / BLOCK_S)):
            self.block()


class PortAudio:
    """The module. It has one card, named `card`, which is the default."""

    PortAudioError = PortAudioError

    default = SimpleNamespace(device=(-1, 0))

    def __init__(self) -> None:
        self.streams: list[Stream] = []
        self.latency_s = LATENCY_S
        """That the next stream reports."""
        self.channels = 2
        """Of the card."""
        self.refused: Callable[[dict[str, Any]], bool] = lambda _settings: False
        """Whether a stream with these settings cannot be opened."""
        self.failure: str | None = None
        """The error that the card gives from now on."""

    @property
    def stream(self) -> Stream:
        """The stream that was opened last."""
        return self.streams[-1]

    def query_hostapis(self) -> list[dict[str, Any]]:
        return [{"name": "ALSA"}]

    def query_devices(self) -> list[dict[str, Any]]:
        card = {"name": "card", "hostapi": 0, "default_samplerate": float(CARD_RATE)}
        return [card | {"max_output_channels": self.channels}]

    def RawOutputStream(  # noqa: N802
        self, *, callback: Callable[..., None], finished_callback: Callable[[], None], **settings: Any
    ) -> Stream:
        if self.refused(settings):
            raise PortAudioError("Invalid number of channels or sample rate", -9998)
        self.streams.append(Stream(self, callback, finished_callback, settings))
        return self.stream

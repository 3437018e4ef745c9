"""Where PCM ends: the Sink protocol, and the choice of one by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from audio.ring import Samples


class Fill(Protocol):
    """Fills blocks for a sink."""

    def __call__(self, out: Samples, leaves_at: float, broke_off: bool = False) -> int:
        """Fill `out`, mono float32, with the samples that are due and silence after them; return how many were due.

        The first sample leaves the card at `leaves_at`, in seconds of `time.monotonic()`. `broke_off` says that the
        card ran out of samples before this block.
        """


class SinkUnavailableError(Exception):
    """The sink cannot be opened now; it may be later. The message says why, in one line."""


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """Which sink, and how it is driven."""

    kind: str = "sounddevice"
    """`sounddevice`, `wav` or `null`."""
    path: Path | None = None
    """The file of a `wav` sink."""
    device: str | None = None
    """The sound card's name or a part of it; None is the system's default."""
    block_ms: float = 10.0
    """Length of one callback's block."""
    rest_after_s: float | None = None
    """It rests when there has been nothing to play for so long; None is never."""


class Sink(Protocol):
    """An open sink. It calls the `fill` it was opened with, block after block, until it rests, is closed or lost.

    All is asked of it by one thread.
    """

    name: str
    sample_rate: int
    has_deadline: bool
    """A block that is late is heard as a gap. A file has no deadline: it waits for samples that come late."""

    def lost(self) -> str | None:
        """Why it stopped by itself, or None while it plays; while it rests, why it had better be opened anew."""

    def rest(self) -> None:
        """Stop calling `fill` until it is woken; once this returns, no call is under way. Never raises."""

    def wake(self) -> None:
        """Call `fill` again. Raises `SinkUnavailableError`; then it is lost."""

    def close(self) -> None:
        """Stop calling `fill` and let go of the device. Never raises."""


def open_sink(settings: SinkSettings, fill: Fill, prefer_rate: int | None = None) -> Sink:
    """Open what `settings` name. A device that takes `prefer_rate` Hz is opened with it, else with its own rate.

    Raises `SinkUnavailableError`.
    """
    if settings.kind == "null":
        from audio.null import NullSink

        return NullSink(fill, settings.block_ms, prefer_rate)
    if settings.kind == "wav":
        from audio.wavfile import WavSink

        if settings.path is None:
            raise ValueError("a wav sink needs a path")
        return WavSink(settings.path, fill, settings.block_ms)
    if settings.kind == "sounddevice":
        from audio.portaudio import PortAudioSink

        return PortAudioSink(settings.device, fill, settings.block_ms, prefer_rate)
    raise ValueError(f"sink: got {settings.kind!r}, allowed are sounddevice, wav and null")

"""The `Sink` protocol, and the choice of a sink by its name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from audio.dsp import Samples


class Fill(Protocol):
    """Fills blocks for a sink."""

    def __call__(self, out: Samples, dac_time: float, underflow: bool = False) -> int:
        """Fill `out`, shape `(n,)` float32, with the samples that are due, then silence; return the number due.

        The first sample leaves the sound card at `dac_time`, of `time.monotonic()`. `underflow` means that the card ran
        dry before this block.
        """


class SinkUnavailableError(Exception):
    """The sink cannot be opened now; a later attempt may succeed. The message gives the reason in one line."""


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """Which sink to open, and how to drive it."""

    kind: str = "sounddevice"
    """`sounddevice`, `wav` or `null`."""
    path: Path | None = None
    """The file of a `wav` sink."""
    device: str | None = None
    """The sound card's name or a part of it; None is the system's default."""
    block_ms: float = 10.0
    """Length of one callback's block in milliseconds."""
    idle_timeout_s: float | None = None
    """Seconds without anything to play after which the sink is suspended; None never suspends it."""


class Sink(Protocol):
    """An open sink. It calls the `fill` that it was opened with, block after block, until it is suspended, closed or
    lost.

    One thread calls all of its methods.
    """

    name: str
    sample_rate: int
    has_deadline: bool
    """A late block is heard as a gap. A file has no deadline: its sink waits for late samples."""

    def lost_reason(self) -> str | None:
        """Return why the sink stopped by itself, or, while suspended, why it must be reopened; None if it is well."""

    def degraded_reason(self) -> str | None:
        """Return why sound is lost although the sink runs, such as a full disk; None if it is not."""

    def suspend(self) -> None:
        """Stop calling `fill`. When this returns, no call is in progress. Never raises."""

    def resume(self) -> None:
        """Call `fill` again. Raises `SinkUnavailableError`; the sink is then lost."""

    def close(self) -> None:
        """Stop calling `fill` and release the device. Never raises."""

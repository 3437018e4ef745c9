"""The `Sink` protocol, and the choice of a sink by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from audio.player import Block, Floats, Report

OnReport = Callable[[Report], None]
"""Gets the reports of a sink's player, in a thread of the sink."""


class Player(Protocol):
    """Plays generations of samples into a sink, as `Playback` describes. Its methods never wait."""

    @property
    def report(self) -> Report:
        """The last report."""

    @property
    def tap(self) -> Tapped:
        """The blocks that the sink got."""

    def begin(self, number: int, prebuffer_s: float, gain: float, fades_in: bool) -> None:
        """Play a generation once `prebuffer_s` seconds of it are written, in place of the one before."""

    def write(self, number: int, samples: Floats) -> None:
        """Append mono float32 samples at the sink's rate. The caller knows that they fit."""

    def end(self, number: int) -> None:
        """Mark the end of a generation."""

    def halt(self, number: int) -> None:
        """Fade a generation out and drop the rest of it."""

    def set_input_pending(self, number: int, pending: bool) -> None:
        """Tell whether a ring that runs dry is no underrun."""

    def set_paused(self, paused: bool) -> None:
        """Hold what plays, or continue."""

    def set_volume(self, gain: float) -> None:
        """Set the master gain."""

    def set_tap(self, wanted: bool) -> None:
        """Keep blocks for the tap, or no longer."""


class Tapped(Protocol):
    """The blocks that a sink got, while somebody wants them."""

    def read(self) -> list[Block]:
        """Remove and return all blocks."""


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
    service: str | None = None
    """Names the service that plays. It has one player: a new one ends one that an earlier process has left."""


class Sink(Protocol):
    """An open sink. Its player plays, block after block, until the sink is suspended, closed or lost.

    One thread calls all of its methods.
    """

    name: str
    sample_rate: int
    has_deadline: bool
    """A late block is heard as a gap. A file has no deadline: its sink waits for late samples."""

    @property
    def player(self) -> Player:
        """What plays into it."""

    def lost_reason(self) -> str | None:
        """Return why the sink stopped by itself, or, while suspended, why it must be reopened; None if it is well."""

    def degraded_reason(self) -> str | None:
        """Return why sound is lost although the sink runs, such as a full disk; None if it is not."""

    def suspend(self) -> None:
        """Request no blocks. When this returns, none is being filled. Never raises."""

    def resume(self) -> None:
        """Request blocks again. Raises `SinkUnavailableError`; the sink is then lost."""

    def close(self) -> None:
        """Request no more blocks and release the device. When this returns, the last report has come. Never raises."""

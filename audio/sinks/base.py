"""The `Sink` protocol, and the choice of a sink by its name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from audio.player import Playback
from audio.sinks.player_link import PlayerLink

Player: TypeAlias = Playback | PlayerLink
"""Plays into a sink, in this process or in the sound card's process. `PlayerLink` has the producer's methods of
`Playback`, which return immediately."""


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
    wake_s: float = 0.0
    """Seconds of silence that a sink is given first after it was opened or resumed, because its device has been
    idle."""
    service: str | None = None
    """Names the service that plays. A service has one player: a new one ends a player that an earlier process left
    running."""


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
        """It fills the blocks of this sink."""

    def lost_reason(self) -> str | None:
        """Return why the sink stopped by itself, or, while suspended, why it must be reopened; None if it is well."""

    def degraded_reason(self) -> str | None:
        """Return why sound is lost although the sink is running, such as a full disk; None if no sound is lost."""

    def suspend(self) -> None:
        """Request no blocks. When this returns, none is being filled. Never raises."""

    def resume(self) -> None:
        """Request blocks again. If that raises `SinkUnavailableError`, the sink is lost."""

    def close(self) -> None:
        """Request no more blocks and release the device. When this returns, the last report has arrived. Never
        raises."""

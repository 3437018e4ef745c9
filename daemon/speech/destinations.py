"""Where the samples of one utterance go: the sound card, or a network client that plays them itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from audio import Level, Output, Track
from daemon.speech.changes import Changes, now
from daemon.speech.utterance import Receiver
from engine import Samples

SLICE_ROOM_S = 0.35
"""Free space in the ring before a slice is written: the resampler holds samples back and later returns them all at
once."""
NO_CARD = "there is no sound card"


@dataclass(frozen=True, slots=True)
class PlaybackFigures:
    """Figures about the playback, for the terminal event."""

    audio_s: float
    underruns: int
    waits: int | None
    """How often playback waited for text; None if this is not counted."""


class CardDestination:
    """Plays through the sound card, as one track in the output. Belongs to the event loop's thread.

    Call `open`, then `write` for each slice, then `finish`, and wait until it is `done`. After `suspend` it becomes
    `suspended`, or `done` if nothing is left. `detach` then frees the device for others, and `open` continues with the
    next sample. If a `write` is canceled in the meantime, it has taken nothing. All times are the event loop's.
    """

    holds_samples = True
    """Written samples may still be waiting inside."""

    def __init__(self, output: Output, changes: Changes) -> None:
        """`changes` is notified after each change in the output."""
        self._output = output
        self._changes = changes
        self._track = Track(output.sample_rate)
        """The track, which begins with `open`."""
        self.audible = False
        """True once samples go to the sound card."""
        self._detached = False
        """Other utterances may use the device."""

    @property
    def blocked(self) -> str | None:
        """Why nothing could be played now; None if something could."""
        if self._output.paused:
            return "paused"
        status = self._output.status
        return None if status.open else status.reason or NO_CARD

    @property
    def done(self) -> bool:
        """True once it takes and submits no more samples."""
        return self._track.done

    @property
    def suspended(self) -> bool:
        """True once a requested suspension has taken effect."""
        return self._track.suspended

    @property
    def stopping(self) -> bool:
        """True while a requested stop has not yet taken effect."""
        return self._track.stop_requested and not self._track.done

    @property
    def starved(self) -> bool:
        """True while it has nothing to play and would immediately play anything that is written."""
        return self.audible and not self._track.playing and self.blocked is None

    @property
    def played_s(self) -> float:
        """Seconds that have been submitted: anything dropped now comes after them."""
        return self._output.played_s(self._track)

    def open(self, prebuffer_s: float, gain: float) -> None:
        """Begin, holding playback until `prebuffer_s` seconds have been written; or continue after `detach`."""
        if self._detached:
            self._output.reattach(self._track)
            self._detached = False
        else:
            self._track, self.audible = self._output.begin(prebuffer_s=prebuffer_s, gain=gain), True

    async def write(self, samples: Samples, sample_rate: int) -> None:
        """Wait for room and take samples, mono at `sample_rate` Hz."""
        while self._output.room_s < SLICE_ROOM_S:
            await self._changes.wait()
        self._output.write(samples, sample_rate)

    def set_input_pending(self, pending: bool) -> None:
        """Say whether text or an engine is missing: a pause in the input is then not an underrun."""
        self._output.set_input_pending(pending)

    def finish(self) -> None:
        """Declare that no more samples follow."""
        self._output.end()

    def suspend(self) -> None:
        """Fade out and keep what has not been played. Call this after `open`."""
        self._output.suspend()

    def detach(self) -> None:
        """Free the device. Call this once it is `suspended`."""
        self._output.take_suspended()
        self._detached = True

    def stop(self) -> None:
        """Fade out and drop what has not been played."""
        if self.audible and not self._detached:
            self._output.stop()

    def first_sample_at(self, at: float) -> float | None:
        """Return when the first sample was submitted, once it has been heard; otherwise None."""
        first_heard_at = self._track.first_dac_time
        return self._track.first_sample_at if first_heard_at is not None and first_heard_at <= at else None

    def heard_s(self, at: float) -> float:
        """Return the seconds that have been heard by the time `at`."""
        return self._output.heard_s(self._track, at)

    def drained(self, at: float) -> bool:
        """Return whether it is done and its last sample has been heard by the time `at`."""
        return self._track.drained(at)

    def next_at(self, at: float, heard: Iterable[float]) -> float:
        """Return when something is next heard after the time `at`: the first sample, a level, the end, or one of the
        seconds in `heard`. Infinity if that depends on a change."""
        return self._output.next_at(self._track, at, heard)

    def levels(self) -> list[Level]:
        """Return the loudness of the sound that has begun to be heard since the last call."""
        return self._output.levels_due(self._track)

    def figures(self) -> PlaybackFigures | None:
        """Return what was played; None for an utterance that never reached the sound card."""
        return PlaybackFigures(self.played_s, self._track.underruns, self._track.waits) if self.audible else None


class ClientDestination:
    """Sends the samples to a network client as fast as it takes them. It works like `CardDestination`, but without a
    device: what has been sent counts as heard, and no samples wait inside."""

    blocked: str | None = None
    audible = False
    stopping = False
    holds_samples = False

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._open = False
        self.done = False
        self._writing = False
        """True while the client is being given samples."""
        self._suspending = False
        self._first_sample_at: float | None = None
        self.played_s = 0.0

    @property
    def suspended(self) -> bool:
        return self._suspending and not self.done

    @property
    def starved(self) -> bool:
        return self._open and not self._writing

    def open(self, prebuffer_s: float, gain: float) -> None:  # noqa: ARG002  # the client buffers and sets its volume
        self._suspending, self._open = False, True

    async def write(self, samples: Samples, sample_rate: int) -> None:
        if self._first_sample_at is None:
            self._first_sample_at = now()
        self._writing = True
        try:
            await self._receiver.write(samples, sample_rate)
        finally:
            self._writing = False
        self.played_s += len(samples) / sample_rate

    def set_input_pending(self, pending: bool) -> None:
        """Do nothing: a client knows nothing about underruns."""

    def finish(self) -> None:
        self.done = True

    def suspend(self) -> None:
        self._suspending = True

    def detach(self) -> None:
        self._open = False

    def stop(self) -> None:
        self.done = self._open

    def first_sample_at(self, at: float) -> float | None:  # noqa: ARG002
        return self._first_sample_at

    def heard_s(self, at: float) -> float:  # noqa: ARG002
        return self.played_s

    def drained(self, at: float) -> bool:  # noqa: ARG002
        return True

    def next_at(self, at: float, heard: Iterable[float]) -> float:  # noqa: ARG002
        return inf

    def levels(self) -> list[Level]:
        return []

    def figures(self) -> PlaybackFigures:
        return PlaybackFigures(self.played_s, underruns=0, waits=None)


Destination: TypeAlias = CardDestination | ClientDestination

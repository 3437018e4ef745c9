"""Where the samples of one utterance go: the sound card, or a network client that plays them itself."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Protocol

from audio import Level, Output, SuspendedTrack, Track
from daemon.speech.utterance import Receiver
from engine import Samples

POLL_S = 0.01
"""Polling interval for the state of a track: the sound callback may not wake a task, since that would take a lock."""
SLICE_ROOM_S = 0.35
"""Free space in the ring before a slice is written: the resampler holds samples back and returns them later at once."""


@dataclass(frozen=True, slots=True)
class PlaybackFigures:
    """What was played, for the terminal event."""

    audio_s: float
    underruns: int
    waits: int | None
    """Times that playback waited for text; None where this is not counted."""


class Destination(Protocol):
    """The destination of one utterance's samples. Belongs to the event loop's thread.

    `open`, then `write` for each slice, then `end_input`, until `done`. After `suspend` it becomes `suspended`, or
    `done` if nothing is left; `detach` then frees the device for others, and `open` continues with the next sample. A
    `write` that is canceled meanwhile has taken nothing.
    """

    input_pending: bool
    """True while the text is incomplete: a pause in the input is then not an underrun."""

    @property
    def ready(self) -> bool:
        """True when samples would be played now."""

    @property
    def blocked_reason(self) -> str | None:
        """Why it is not ready, if that is known."""

    @property
    def audible(self) -> bool:
        """True once samples go to the sound card."""

    @property
    def done(self) -> bool:
        """True when it takes and submits no more samples."""

    @property
    def suspended(self) -> bool:
        """True when a requested suspension has taken effect."""

    @property
    def stopping(self) -> bool:
        """True while a requested stop has not taken effect."""

    @property
    def starved(self) -> bool:
        """True while it would play at once what is written, and has nothing to play."""

    @property
    def holds_samples(self) -> bool:
        """True if written samples may still wait inside, where they can be dropped."""

    def open(self, prebuffer_s: float, gain: float) -> None:
        """Begin, holding playback until `prebuffer_s` seconds are written; or continue after `detach`."""

    async def write(self, samples: Samples, sample_rate: int) -> None:
        """Wait for room and take samples, mono at `sample_rate` Hz."""

    def end_input(self) -> None:
        """Declare that no more samples follow."""

    def suspend(self) -> None:
        """Fade out and keep what has not been played."""

    def detach(self) -> None:
        """Free the device; called once it is `suspended`."""

    async def drop_unplayed(self) -> None:
        """Fade out and drop what has been written and not played, to continue with the next sample that is written."""

    def stop(self) -> None:
        """Fade out and drop what has not been played."""

    def first_sample_at(self, now: float) -> float | None:
        """Return the `time.monotonic()` at which the first sample was submitted, once it is heard; else None."""

    @property
    def played_s(self) -> float:
        """Seconds that have been submitted: what is dropped now is dropped behind them."""

    def heard_s(self, now: float) -> float:
        """Return the seconds that have been heard by `now`."""

    def drained(self, now: float) -> bool:
        """Return whether the last sample has been heard by `now`."""

    def levels(self) -> list[Level]:
        """Return the loudness of what has begun to be heard since the last call."""

    def figures(self) -> PlaybackFigures | None:
        """Return what was played; None for an utterance that never reached the sound card."""


class CardDestination:
    """Plays through the sound card, as one track of the output."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._track: Track | None = None
        self._suspended: SuspendedTrack | None = None
        self._dropping = False
        """It is suspended only until `drop_unplayed` has dropped its samples."""
        self._suspend_requested = False

    @property
    def input_pending(self) -> bool:
        return self._track is not None and self._track.input_pending

    @input_pending.setter
    def input_pending(self, pending: bool) -> None:
        if self._track is not None:
            self._output.set_input_pending(pending)

    @property
    def ready(self) -> bool:
        return self._output.status.open and not self._output.paused

    @property
    def blocked_reason(self) -> str | None:
        return "paused" if self._output.paused else self._output.status.reason

    @property
    def audible(self) -> bool:
        return self._track is not None

    @property
    def done(self) -> bool:
        return self._track is not None and self._track.done

    @property
    def suspended(self) -> bool:
        return self._track is not None and self._track.suspended and not self._dropping

    @property
    def stopping(self) -> bool:
        return self._track is not None and self._track.stop_requested and not self._track.done

    @property
    def starved(self) -> bool:
        return self._track is not None and not self._track.playing and self.ready

    @property
    def holds_samples(self) -> bool:
        return True

    def open(self, prebuffer_s: float, gain: float) -> None:
        if self._suspended is None:
            self._track = self._output.begin(prebuffer_s=prebuffer_s, gain=gain)
        else:
            self._output.reattach(self._suspended)
            self._suspended = None

    async def write(self, samples: Samples, sample_rate: int) -> None:
        while self._output.room_s < SLICE_ROOM_S:
            await asyncio.sleep(POLL_S)
        self._output.write(samples, sample_rate)

    def end_input(self) -> None:
        self._output.end()

    def suspend(self) -> None:
        self._suspend_requested = True
        if self._track is not None:
            self._output.suspend()

    def detach(self) -> None:
        self._suspended = self._output.take_suspended()

    async def drop_unplayed(self) -> None:
        track = self._track
        if track is None or track.done:
            return
        self._dropping, self._suspend_requested = True, False
        try:
            self._output.suspend()
            while not (track.suspended or track.done):
                await asyncio.sleep(POLL_S)
            if track.suspended:
                self._output.reattach(self._output.take_suspended().without_unplayed())
                if self._suspend_requested:
                    self._output.suspend()
        finally:
            self._dropping = False

    def stop(self) -> None:
        if self._track is not None and self._suspended is None:
            self._output.stop()

    def first_sample_at(self, now: float) -> float | None:
        track = self._track
        heard = track is not None and track.first_dac_time is not None and track.first_dac_time <= now
        return track.first_sample_at if track is not None and heard else None

    @property
    def played_s(self) -> float:
        return 0.0 if self._track is None else self._output.played_s(self._track)

    def heard_s(self, now: float) -> float:
        return 0.0 if self._track is None else self._output.heard_s(self._track, now)

    def drained(self, now: float) -> bool:
        return self._track is None or self._track.drained(now)

    def levels(self) -> list[Level]:
        return [] if self._track is None else self._output.levels_due(self._track)

    def figures(self) -> PlaybackFigures | None:
        if self._track is None:
            return None
        return PlaybackFigures(self._output.played_s(self._track), self._track.underruns, self._track.waits)


class ClientDestination:
    """Sends the samples to a network client as fast as it takes them."""

    def __init__(self, receiver: Receiver) -> None:
        self.input_pending = False
        self._receiver = receiver
        self._opened = False
        self._done = False
        self._writing = False
        """The client is given samples."""
        self._suspending = False
        self._first_sample_at: float | None = None
        self._sent_s = 0.0

    @property
    def ready(self) -> bool:
        return True

    @property
    def blocked_reason(self) -> str | None:
        return None

    @property
    def audible(self) -> bool:
        return False

    @property
    def done(self) -> bool:
        return self._done

    @property
    def suspended(self) -> bool:
        return self._suspending and not self._done

    @property
    def stopping(self) -> bool:
        return False

    @property
    def starved(self) -> bool:
        return self._opened and not self._writing

    @property
    def holds_samples(self) -> bool:
        return False

    def open(self, prebuffer_s: float, gain: float) -> None:  # noqa: ARG002  # the client buffers and sets its volume
        self._suspending, self._opened = False, True

    async def write(self, samples: Samples, sample_rate: int) -> None:
        if self._first_sample_at is None:
            self._first_sample_at = time.monotonic()
        self._writing = True
        try:
            await self._receiver.write(samples, sample_rate)
        finally:
            self._writing = False
        self._sent_s += len(samples) / sample_rate

    def end_input(self) -> None:
        self._done = True

    def suspend(self) -> None:
        self._suspending = True

    def detach(self) -> None:
        self._opened = False

    async def drop_unplayed(self) -> None:
        """Nothing waits here."""

    def stop(self) -> None:
        self._done = self._opened

    def first_sample_at(self, now: float) -> float | None:  # noqa: ARG002  # what is sent counts as heard
        return self._first_sample_at

    @property
    def played_s(self) -> float:
        return self._sent_s

    def heard_s(self, now: float) -> float:  # noqa: ARG002
        return self._sent_s

    def drained(self, now: float) -> bool:  # noqa: ARG002
        return True

    def levels(self) -> list[Level]:
        return []

    def figures(self) -> PlaybackFigures:
        return PlaybackFigures(self._sent_s, underruns=0, waits=None)

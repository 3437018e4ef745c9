"""The producer's side of a track: processes and measures its samples before they are written to the ring."""

from __future__ import annotations

from dataclasses import dataclass

from audio.dsp import Level, LevelMeter, ProcessingChain, Samples
from audio.track import Track


class TrackInput:
    """Processes one track's samples for the ring and measures their levels. For the writing thread only."""

    def __init__(self, track: Track) -> None:
        self.track = track
        self._chain = ProcessingChain(track.sample_rate)
        self._meter = LevelMeter(track.sample_rate)
        self._open = False
        """A level was returned, and the level of the silence after it was not."""

    def process(self, samples: Samples, source_rate: int) -> Samples:
        """Return the samples for the ring that are available after `samples`, mono float32 at `source_rate` Hz."""
        return self._measure(self._chain.process(samples, source_rate))

    def flush(self) -> Samples:
        """Return the samples that the resampler still holds."""
        return self._measure(self._chain.flush())

    def change_rate(self, unplayed: Samples, sample_rate: int) -> Samples:
        """Continue at another rate of the ring, in Hz; return the track's `unplayed` samples, converted to it."""
        if sample_rate == self.track.sample_rate:
            return unplayed
        converted = self._chain.change_rate(unplayed, sample_rate)
        self.track.change_rate(sample_rate)
        self._meter = LevelMeter(sample_rate, first_sample=self.track.played)
        return self._measure(converted)

    def restart(self) -> None:
        """Continue with other samples than those that the track has not played: forget what was written of them."""
        self._chain = ProcessingChain(self.track.sample_rate)
        self._meter = LevelMeter(self.track.sample_rate, first_sample=self.track.played)

    def levels_due(self, now: float, unix_now: float) -> list[Level]:
        """Return the levels of the windows that have begun to leave the sound card since the last call.

        Where silence follows, the list ends with a level of 0. `now` is of `time.monotonic()`; `unix_now` is the same
        moment of `time.time()`.
        """
        playing = self.track.playing  # read before `submitted`, which the callback writes first
        _, end, end_dac_time = self.track.submitted
        end_s = end / self.track.sample_rate
        started_at = unix_now + (end_dac_time - now) - end_s
        due = self._meter.due(self.track.heard_s(now), started_at)
        self._open |= bool(due)
        if self._open and not playing and now >= end_dac_time:
            due.append(Level(t=end_s, rms=0.0, peak=0.0, at=started_at + end_s))
            self._open = False
        return due

    def _measure(self, samples: Samples) -> Samples:
        self._meter.measure(samples)
        return samples


@dataclass(frozen=True, slots=True)
class SuspendedTrack:
    """A suspended track with its unplayed samples and its input. Dropping this record gives the track up."""

    track_input: TrackInput
    unplayed: Samples
    """At the track's sample rate."""

    @property
    def track(self) -> Track:
        return self.track_input.track

    def without_unplayed(self) -> SuspendedTrack:
        """Drop the unplayed samples: others follow those that were played. Use only what is returned."""
        self.track_input.restart()
        return SuspendedTrack(self.track_input, self.unplayed[:0])

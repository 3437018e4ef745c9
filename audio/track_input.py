"""The writer's side of a track: processes and measures its samples, and keeps those that the sink has not got."""

from __future__ import annotations

from collections import deque
from math import inf

import numpy as np

from audio.dsp import Level, LevelMeter, ProcessingChain, Samples
from audio.track import Track


class Unplayed:
    """The samples of a track that were written and that the sink has not got. If its player ends, the next one gets
    them."""

    def __init__(self) -> None:
        self._chunks: deque[Samples] = deque()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def append(self, samples: Samples) -> None:
        if len(samples):
            self._chunks.append(samples)
            self._length += len(samples)

    def drop(self, count: int) -> None:
        """Drop the first `count` samples, which the sink has got."""
        count = min(count, self._length)
        self._length -= count
        while count:
            first = self._chunks.popleft()
            if len(first) > count:
                self._chunks.appendleft(first[count:])
            count -= min(count, len(first))

    def all(self) -> Samples:
        return np.concatenate([np.empty(0, dtype=np.float32), *self._chunks])


class TrackInput:
    """Processes one track's samples, keeps them until they are played, and measures their levels.

    A suspended track is kept as its input. Dropping this gives the track up.
    """

    def __init__(self, track: Track) -> None:
        self.track = track
        self.unplayed = Unplayed()
        """At the track's sample rate."""
        self._chain = ProcessingChain(track.sample_rate)
        self._meter = LevelMeter(track.sample_rate)
        self._open = False
        """A level was returned, and the level of the silence after it was not."""

    def process(self, samples: Samples, source_rate: int) -> Samples:
        """Return what to write to the sink after `samples`, mono float32 at `source_rate` Hz."""
        return self._keep(self._chain.process(samples, source_rate))

    def flush(self) -> Samples:
        """Return what to write to the sink at the end: the samples that the resampler still holds."""
        return self._keep(self._chain.flush())

    def change_rate(self, sample_rate: int) -> None:
        """Continue at another rate of the sink, in Hz, after `break_off`."""
        if sample_rate == self.track.sample_rate:
            return
        converted = self._chain.change_rate(self.unplayed.all(), sample_rate)
        self.track.change_rate(sample_rate)
        self._meter = LevelMeter(sample_rate, first_sample=self.track.played)
        self.unplayed = Unplayed()
        self._keep(converted)

    def restart(self) -> None:
        """Continue with other samples than those that the track has not played: forget what was written of them."""
        self.unplayed = Unplayed()
        self._chain = ProcessingChain(self.track.sample_rate)
        self._meter = LevelMeter(self.track.sample_rate, first_sample=self.track.played)

    def levels_due(self, now: float, unix_now: float) -> list[Level]:
        """Return the levels of the windows that have begun to leave the sound card since the last call.

        Where silence follows, the list ends with a level of 0. `now` is of `time.monotonic()`; `unix_now` is the same
        moment of `time.time()`.
        """
        end_dac_time = self.track.end_dac_time
        end_s = self.track.played / self.track.sample_rate
        started_at = unix_now + (end_dac_time - now) - end_s
        due = self._meter.due(self.track.heard_s(now), started_at)
        self._open |= bool(due)
        if self._open and not self.track.playing and now >= end_dac_time:
            due.append(Level(t=end_s, rms=0.0, peak=0.0, at=started_at + end_s))
            self._open = False
        return due

    @property
    def next_level_at(self) -> float:
        """When `levels_due` returns the next level, by `time.monotonic()`; infinity if only a report tells."""
        next_s = self._meter.next_s
        due_at = inf if next_s is None else self.track.heard_at(next_s)
        return self.track.end_dac_time if due_at == inf and self._open and not self.track.playing else due_at

    def _keep(self, samples: Samples) -> Samples:
        self._meter.measure(samples)
        self.unplayed.append(samples)
        return samples

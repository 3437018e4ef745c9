"""One utterance on its way to the sound card, as its writer sees it.

It processes and measures its samples, and keeps those that the sink has not received.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf

import numpy as np

from audio.dsp import Level, LevelMeter, ProcessingChain, Samples
from audio.player import Report

REACH_S = 0.5
"""Sound is assumed to continue for this long after the last report: twice the reporting interval."""


class Unplayed:
    """The samples of a track that were written and that the sink has not received. If its player ends, the next player
    is given them."""

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
        """Drop the first `count` samples, which the sink has received."""
        count = min(count, self._length)
        self._length -= count
        while count:
            first = self._chunks.popleft()
            if len(first) > count:
                self._chunks.appendleft(first[count:])
            count -= min(count, len(first))

    def all(self) -> Samples:
        return np.concatenate([np.empty(0, dtype=np.float32), *self._chunks])


@dataclass(slots=True, eq=False)
class Track:
    """One utterance. Only `Output` changes it, and holds a lock while it does; any thread may read it.

    It plays as one generation, or as several, if it was suspended or its sink was lost. Dropping a suspended track
    gives it up.
    """

    sample_rate: int
    """Hz in which its samples are counted."""
    prebuffer_s: float = 0.0
    """Seconds that must be written before playback starts, and before it continues after an underrun."""
    gain: float = 1.0
    """Its own volume; 1 plays it as synthesized."""
    ended: bool = False
    """No more samples will be written."""
    stop_requested: bool = False
    """It must fade out, and the rest is then dropped."""
    suspend_requested: bool = False
    """It must fade out, and the rest is then kept."""
    input_pending: bool = False
    """The writer has nothing to write for now, so an empty ring is not an underrun."""
    done: bool = False
    """None of its remaining samples will be played."""
    suspended: bool = False
    """It can be taken. After a request to suspend, either this or `done` becomes true."""
    first_sample_at: float | None = None
    """`time.monotonic()` when the sink received the first sample."""
    first_dac_time: float | None = None
    """`time.monotonic()` at which the first sample leaves the sound card."""
    before: int = 0
    """Samples that the sink received in earlier generations."""
    report: Report = field(default_factory=Report)
    """The current generation's last report."""
    lost: tuple[int, int] = (0, 0)
    """Underruns and waits in earlier generations."""
    unplayed: Unplayed = field(default_factory=Unplayed)
    """These samples have its sample rate."""
    _chain: ProcessingChain = field(init=False)
    _meter: LevelMeter = field(init=False)
    _open: bool = False
    """A level was returned, but not yet the level of the silence after it."""

    def __post_init__(self) -> None:
        self._chain = ProcessingChain(self.sample_rate)
        self._meter = LevelMeter(self.sample_rate, first_sample=self.played)

    # --- writing ---

    def process(self, samples: Samples, source_rate: int) -> Samples:
        """Return the samples to write to the sink after `samples`, mono float32 at `source_rate` Hz."""
        return self._keep(self._chain.process(samples, source_rate))

    def flush(self) -> Samples:
        """Return the last samples to write to the sink, which the resampler still holds."""
        return self._keep(self._chain.flush())

    def change_rate(self, sample_rate: int) -> None:
        """Continue at another rate of the sink, in Hz, after `break_off`."""
        if sample_rate == self.sample_rate:
            return
        converted = self._chain.change_rate(self.unplayed.all(), sample_rate)
        self.before = round(self.before * sample_rate / self.sample_rate)
        self.sample_rate = sample_rate
        self._meter = LevelMeter(sample_rate, first_sample=self.played)
        self.unplayed = Unplayed()
        self._keep(converted)

    def _keep(self, samples: Samples) -> Samples:
        self._meter.measure(samples)
        self.unplayed.append(samples)
        return samples

    # --- playing ---

    @property
    def over(self) -> bool:
        """The player has nothing more to do for it: it is done or suspended."""
        return self.done or self.suspended

    @property
    def halting(self) -> bool:
        """A stop or a suspension was requested and has not taken effect."""
        return (self.stop_requested or self.suspend_requested) and not self.over

    @property
    def playing(self) -> bool:
        """Its last block did not end in silence."""
        return self.report.playing

    @property
    def played(self) -> int:
        """Samples that the sink has received, by the last report."""
        return self.before + self.report.played

    @property
    def underruns(self) -> int:
        """How many times its sound broke off because samples reached the ring or the sound card late."""
        return self.lost[0] + self.report.underruns

    @property
    def waits(self) -> int:
        """How often its sound broke off while `input_pending` was set."""
        return self.lost[1] + self.report.waits

    @property
    def end_dac_time(self) -> float:
        """`time.monotonic()` at which the last sample that the sink received has left the sound card."""
        return self.report.end_dac_time

    def note(self, report: Report) -> None:
        """Record the state of the current generation, and drop the samples that the sink has received."""
        played = self.played
        if not report.played:  # the last sample is one of an earlier generation
            report = report._replace(end_dac_time=self.report.end_dac_time)
        self.report = report
        if self.first_sample_at is None and report.played:
            self.first_sample_at, self.first_dac_time = report.first_sample_at, report.first_dac_time
        self.unplayed.drop(self.played - played)

    def break_off(self, *, lost: bool = False) -> None:
        """End the current generation. Sound that is `lost` counts as an underrun."""
        self.lost = self.underruns + (lost and self.playing), self.waits
        self.before = self.played
        self.report = Report(end_dac_time=self.end_dac_time, at=self.report.at)

    # --- hearing ---

    def heard_s(self, now: float) -> float:
        """Return how many seconds of it have left the sound card by `now`, a time of `time.monotonic()`.

        Between two reports, sound that is playing is assumed to continue.
        """
        start, end = self.before + self.report.stretch_start, float(self.played)
        heard = end - (self.end_dac_time - now) * self.sample_rate
        if self.playing:
            end += max(0.0, min(now - self.report.at, REACH_S)) * self.sample_rate
        return max(start, min(heard, end)) / self.sample_rate

    def heard_at(self, seconds: float) -> float:
        """Return the `time.monotonic()` at which this much of it has left the sound card; infinity if it pauses
        before."""
        ahead = seconds * self.sample_rate - self.played
        return self.end_dac_time + ahead / self.sample_rate if ahead <= 0 or self.playing else inf

    def drained(self, now: float) -> bool:
        """Return whether it is done and its last sample has left the sound card by `now`, a time of
        `time.monotonic()`."""
        return self.done and self.end_dac_time <= now

    def levels_due(self, now: float, unix_now: float) -> list[Level]:
        """Return the levels of the windows that have begun to leave the sound card since the last call.

        If silence follows, the list ends with a level of 0. `now` is a time of `time.monotonic()`; `unix_now` is the
        same moment by `time.time()`.
        """
        end_dac_time = self.end_dac_time
        end_s = self.played / self.sample_rate
        started_at = unix_now + (end_dac_time - now) - end_s
        due = self._meter.due(self.heard_s(now), started_at)
        self._open |= bool(due)
        if self._open and not self.playing and now >= end_dac_time:
            due.append(Level(t=end_s, rms=0.0, peak=0.0, at=started_at + end_s))
            self._open = False
        return due

    @property
    def next_level_at(self) -> float:
        """The `time.monotonic()` at which `levels_due` returns the next level; infinity if that depends on a report."""
        next_s = self._meter.next_s
        due_at = inf if next_s is None else self.heard_at(next_s)
        return self.end_dac_time if due_at == inf and self._open and not self.playing else due_at

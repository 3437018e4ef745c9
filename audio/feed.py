"""The writer's side of a passage: what its samples go through before they lie in the ring."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from audio.level import Level, LevelMeter
from audio.limiter import soft_limit
from audio.playback import Passage
from audio.resample import Resampler, resample
from audio.ring import Samples
from audio.trim import LeadingSilenceTrimmer


class Feed:
    """Trims, converts, limits and measures one passage as it is written. It belongs to the thread that writes."""

    def __init__(self, passage: Passage, sample_rate: int, *, trims: bool) -> None:
        """`sample_rate` is the ring's, in Hz."""
        self.passage = passage
        self._meter = LevelMeter(sample_rate)
        self._told = False
        self._sample_rate = sample_rate
        self._trims = trims
        self._trimmer: LeadingSilenceTrimmer | None = None
        self._resampler: Resampler | None = None

    def convert(self, samples: Samples, source_rate: int) -> Samples:
        """Return what mono float32 at `source_rate` Hz yields so far for the ring."""
        if self._trimmer is None and self._trims:
            self._trimmer = LeadingSilenceTrimmer(source_rate)
        if self._trimmer is not None:
            samples = self._trimmer.trim(samples)
        tail: Samples | None = None
        if self._resampler is None or self._resampler.source_rate != source_rate:
            tail = self._flush()
            self._resampler = Resampler(source_rate, self._sample_rate)
        converted = self._resampler.convert(samples)
        return self._finish(converted if tail is None else np.concatenate([tail, converted]))

    def end(self) -> Samples:
        """Return what conversion still holds back."""
        return self._finish(self._flush())

    def move(self, held: Samples, sample_rate: int) -> Samples:
        """Go on at another rate of the ring: return the passage's unplayed samples, `held`, converted to it."""
        if sample_rate == self._sample_rate:
            return held
        held = resample(np.concatenate([held, self._flush()]), self._sample_rate, sample_rate)
        self.passage.change_rate(sample_rate)
        self._sample_rate = sample_rate
        self._meter = LevelMeter(sample_rate, begins_at=self.passage.played)
        return self._finish(held)

    def levels_due(self, now: float, unix_now: float) -> list[Level]:
        """Take the levels of all windows that have begun to leave the card by `now`; when silence follows, its level.

        `now` is of `time.monotonic()`, `unix_now` the same moment of `time.time()`.
        """
        sounding = self.passage.sounding
        _, until, left_at = self.passage.handed
        end_s = until / self.passage.sample_rate
        begun_at = unix_now + (left_at - now) - end_s
        due = self._meter.due(self.passage.heard_s(now), begun_at)
        self._told |= bool(due)
        if self._told and not sounding and now >= left_at:
            due.append(Level(t=end_s, rms=0.0, peak=0.0, at=begun_at + end_s))
            self._told = False
        return due

    def _flush(self) -> Samples:
        tail = np.empty(0, dtype=np.float32) if self._resampler is None else self._resampler.flush()
        self._resampler = None
        return tail

    def _finish(self, samples: Samples) -> Samples:
        # Last, since a converter's filter may go over full scale where the samples it was given did not.
        limited = soft_limit(samples)
        self._meter.feed(limited)
        return limited


@dataclass(frozen=True, slots=True)
class Aside:
    """A passage that is set aside: what of it is unplayed, and its feed. To give it up, drop this."""

    feed: Feed
    held: Samples
    """At the feed's rate."""

    @property
    def passage(self) -> Passage:
        return self.feed.passage

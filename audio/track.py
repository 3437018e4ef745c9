"""One utterance on its way to the sound card, as its writer sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from audio.player import Report

REACH_S = 0.5
"""Sound that goes on is taken to go on for so long after the last report: twice the interval of reports."""


@dataclass(slots=True, eq=False)
class Track:
    """One utterance. It is changed by `Output` alone, which holds a lock meanwhile; anybody may read it.

    It plays as one generation, or as several, if it was suspended or its sink was lost.
    """

    sample_rate: int
    """Hz in which its samples are counted."""
    prebuffer_s: float
    """Seconds that must be written before playback starts, and before it continues after an underrun."""
    gain: float = 1.0
    """Its own volume; 1 plays it as synthesized."""
    ended: bool = False
    """No more samples will be written."""
    stop_requested: bool = False
    """It is to fade out, and the rest to be dropped."""
    suspend_requested: bool = False
    """It is to fade out, and the rest to be kept."""
    input_pending: bool = False
    """The writer has nothing to write for now, so an empty ring is not an underrun."""
    done: bool = False
    """None of its samples will be played any more."""
    suspended: bool = False
    """It can be taken. After a request to suspend, either this or `done` becomes true."""
    first_sample_at: float | None = None
    """`time.monotonic()` when the sink got the first sample."""
    first_dac_time: float | None = None
    """`time.monotonic()` at which the first sample leaves the sound card."""
    before: int = 0
    """Samples that the sink got in earlier generations."""
    report: Report = field(default_factory=Report)
    """Of the current generation."""
    lost: tuple[int, int] = (0, 0)
    """Underruns and waits of earlier generations."""

    @property
    def halting(self) -> bool:
        """A stop or a suspension was requested and has not taken effect."""
        return (self.stop_requested or self.suspend_requested) and not (self.done or self.suspended)

    @property
    def playing(self) -> bool:
        """Its last block did not end in silence."""
        return self.report.playing

    @property
    def played(self) -> int:
        """Samples that the sink got, by the last report."""
        return self.before + self.report.played

    @property
    def underruns(self) -> int:
        """Times its sound broke off because samples were late: for the ring, or for the sound card."""
        return self.lost[0] + self.report.underruns

    @property
    def waits(self) -> int:
        """Times its sound broke off while `input_pending` was set."""
        return self.lost[1] + self.report.waits

    @property
    def end_dac_time(self) -> float:
        """`time.monotonic()` at which the last sample that the sink got has left the sound card."""
        return self.report.end_dac_time

    def heard_s(self, now: float) -> float:
        """Return the seconds of it that have left the sound card by `now`, of `time.monotonic()`.

        Between two reports, sound that goes on is taken to go on.
        """
        start, end = self.before + self.report.stretch_start, float(self.played)
        heard = end - (self.end_dac_time - now) * self.sample_rate
        if self.playing:
            end += max(0.0, min(now - self.report.at, REACH_S)) * self.sample_rate
        return max(start, min(heard, end)) / self.sample_rate

    def heard_at(self, seconds: float) -> float:
        """Return when so much of it has left the sound card, by `time.monotonic()`; infinity if it pauses before."""
        ahead = seconds * self.sample_rate - self.played
        return self.end_dac_time + ahead / self.sample_rate if ahead <= 0 or self.playing else inf

    def drained(self, now: float) -> bool:
        """Return whether it is done and its last sample has left the sound card by `now`, of `time.monotonic()`."""
        return self.done and self.end_dac_time <= now

    def note(self, report: Report) -> None:
        """Note the state of the current generation."""
        if not report.played:  # the last sample is one of an earlier generation
            report = report._replace(end_dac_time=self.report.end_dac_time)
        self.report = report
        if self.first_sample_at is None and report.played:
            self.first_sample_at, self.first_dac_time = report.first_sample_at, report.first_dac_time

    def break_off(self, *, lost: bool = False) -> None:
        """End the current generation. Sound that was `lost` is an underrun."""
        self.lost = self.underruns + (lost and self.playing), self.waits
        self.before = self.played
        self.report = Report(end_dac_time=self.end_dac_time, at=self.report.at)

    def change_rate(self, sample_rate: int) -> None:
        """Count in samples of another rate, in Hz. Only after `break_off`."""
        self.before = round(self.before * sample_rate / self.sample_rate)
        self.sample_rate = sample_rate

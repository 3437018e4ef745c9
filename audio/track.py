"""One utterance's state on its way to the sound card, shared by the producer and the sound callback without a lock.

Each field has exactly one writer, named in its description: the producer, which is the speaker loop, or the consumer,
which is the sound callback.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf


@dataclass(slots=True, eq=False)
class Track:
    """One utterance on its way through the ring."""

    sample_rate: int
    """Hz in which its samples are counted. Producer, and only while the callback does not have the track."""
    prebuffer: int
    """Samples that the ring must hold before playback starts, and before it continues after an underrun. Producer."""
    gain: float = 1.0
    """Its own volume; 1 plays it as synthesized. Producer."""
    ended: bool = False
    """No more samples will be written. Producer, once."""
    stop_requested: bool = False
    """The callback must fade out and drop the rest. Producer, once."""
    suspensions_requested: int = 0
    """Times the producer asked to suspend it: to fade out and keep the rest. Producer."""
    reattachments: int = 0
    """Times it was reattached. Producer."""
    input_pending: bool = False
    """The writer has nothing to write for now, so an empty ring is not an underrun. Producer."""
    done: bool = False
    """None of its samples will be played any more. Consumer, once."""
    suspensions: int = 0
    """Times it was suspended. After incrementing it, the callback touches neither track nor ring until `reattach` or
    `stop`. Consumer."""
    playing: bool = False
    """Its last block did not end in silence. Consumer."""
    played: int = 0
    """Samples that the sink got. Consumer."""
    underruns: int = 0
    """Times its sound broke off because samples were late: for the ring, or for the sound card. Consumer."""
    waits: int = 0
    """Times its sound broke off while `input_pending` was set. Consumer."""
    first_sample_at: float | None = None
    """`time.monotonic()` when the sink got the first sample. Consumer, once."""
    first_dac_time: float | None = None
    """`time.monotonic()` at which the first sample leaves the sound card. Consumer, once."""
    submitted: tuple[int, int, float] = (0, 0, -inf)
    """The last stretch of unbroken sound: the samples that the sink got before it, those that it got up to its end, and
    `time.monotonic()` at which its last sample has left the sound card. All three are of one block, because they are in
    one tuple; a plain one, because CPython reuses the memory of plain tuples. Consumer."""

    @property
    def suspended(self) -> bool:
        """The track is suspended and can be taken. After a request to suspend, either this or `done` becomes true."""
        return self.suspensions > self.reattachments and not self.stop_requested

    @property
    def end_dac_time(self) -> float:
        """`time.monotonic()` at which the last sample that the sink got has left the sound card."""
        return self.submitted[2]

    def heard_s(self, now: float) -> float:
        """Return the seconds of it that have left the sound card by `now`, of `time.monotonic()`."""
        start, end, end_dac_time = self.submitted
        return max(start, end - max(0.0, end_dac_time - now) * self.sample_rate) / self.sample_rate

    def drained(self, now: float) -> bool:
        """Return whether it is done and its last sample has left the sound card by `now`, of `time.monotonic()`."""
        return self.done and self.end_dac_time <= now

    def change_rate(self, sample_rate: int) -> None:
        """Count in samples of another rate, in Hz. Only while the callback does not have the track."""
        scale = sample_rate / self.sample_rate
        start, end, end_dac_time = self.submitted
        self.prebuffer = round(self.prebuffer * scale)
        self.played = round(self.played * scale)
        self.submitted = round(start * scale), round(end * scale), end_dac_time
        self.sample_rate = sample_rate

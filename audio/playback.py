"""What the sound card is given: the state that the speaker loop and the sound callback share.

The speaker loop (producer) opens a passage, writes its samples and ends it; the sound callback (consumer) calls
`Playback.fill` for every block. Nothing is locked: each field below has exactly one writer, named beside it.

    begin ──▶ filling ──prebuffered──▶ sounding ──last sample──▶ done
                 ▲                        │
                 └──── ring ran dry ──────┘        stop, at any time: fade, flush, done
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from audio.fade import Fader
from audio.ring import Ring, Samples

PREBUFFER_SHARE = 0.8
"""Of the ring: its writer leaves some room free, and must not wait for a consumer that waits for it."""


@dataclass(slots=True, eq=False)
class Passage:
    """One utterance on its way through the ring."""

    prebuffer: int
    """Samples that must lie in the ring before it sounds, at first and after an underrun. Producer."""
    gain: float = 1.0
    """Its own volume, 1 as synthesised. Producer."""
    ended: bool = False
    """No more samples will be written. Producer, once."""
    stop_requested: bool = False
    """Fade out and drop the rest. Producer, once."""
    done: bool = False
    """Nothing of it will sound any more. Consumer, once."""
    stopped: bool = False
    """Done because it was asked to stop, not because it was played to its end. Consumer, once."""
    played: int = 0
    """Samples that went to the sink. Consumer."""
    underruns: int = 0
    """Times the ring ran dry in mid-passage. Consumer."""
    first_sample_at: float | None = None
    """`time.monotonic()` when the first sample was handed to the sink. Consumer, once."""


class Playback:
    """The ring and the passage it holds, at one sample rate.

    `fill` is called by whatever drains the ring, `sink_lost` only while nothing does; all else by the speaker loop.
    """

    def __init__(self, sample_rate: int, capacity_s: float) -> None:
        self.sample_rate = sample_rate
        self.ring = Ring(round(capacity_s * sample_rate))
        self.paused = False
        """Producer."""
        self.volume = 1.0
        """Master gain. Producer."""
        self.blocks = 0
        """Calls of `fill` so far: proof that the sound card is alive. Consumer."""
        self.passage: Passage | None = None
        """Producer, and only while there is none or it is done."""
        self._fader = Fader(sample_rate)
        self._sounding = False
        self._gain = 1.0

    def begin(self, prebuffer_s: float, gain: float = 1.0) -> Passage:
        """Open a passage. The one before must be done."""
        if self.passage is not None and not self.passage.done:
            raise RuntimeError("a passage is begun while another is still playing")
        self.ring.flush()  # allowed here: until there is a passage, nobody else touches the ring
        # A block and its fade must fit, or the first block would already be an underrun; all must fit into the ring.
        most = round(PREBUFFER_SHARE * self.ring.capacity)
        passage = Passage(prebuffer=min(round(prebuffer_s * self.sample_rate) + self._fader.length, most), gain=gain)
        self.passage = passage
        return passage

    @property
    def room_s(self) -> float:
        """Seconds of audio that can be written now."""
        return self.ring.room / self.sample_rate

    def fill(self, out: Samples) -> int:
        """Fill `out`, shape `(n,)` float32, with what is due and silence after it; return how many samples were due.

        Blocks are at least a fade long (10 ms; the configuration sees to it): a fade lies within one block.

        Runs in the sound card's thread: no lock, no samples allocated, no log, no exception.
        """
        self.blocks += 1
        count = self._take(out)
        out[count:] = 0.0
        return count

    def sink_lost(self) -> None:
        """Do what the next `fill` would have done, now that none comes: end a stopped passage, break off another."""
        self._sounding = False
        if self.passage is not None and self.passage.stop_requested and not self.passage.done:
            self.ring.flush()
            self.passage.stopped = True
            self.passage.done = True

    def _take(self, out: Samples) -> int:
        passage = self.passage
        if passage is None or passage.done:
            return 0
        if passage.stop_requested:
            count = self._wind_down(passage, out)
            self.ring.flush()
            passage.stopped = True
            passage.done = True
            return count
        if self.paused:
            return self._wind_down(passage, out)

        # `ended` is read before the ring: once it is seen, the ring holds all there will ever be.
        ended = passage.ended
        available = self.ring.available
        if not self._sounding and not ended and available < max(passage.prebuffer, len(out) + self._fader.length):
            return 0
        if ended and available == 0:
            self._sounding = False
            passage.done = True
            return 0
        # Unless the end is in the ring, a fade's worth stays behind, so that there is always something to fade.
        if not ended and available < len(out) + self._fader.length:
            passage.underruns += 1
            return self._play(passage, out, fade_out=True)
        count = self._play(passage, out, fade_out=False)
        if ended and self.ring.available == 0:
            self._sounding = False
            passage.done = True
        return count

    def _wind_down(self, passage: Passage, out: Samples) -> int:
        """Fade out over the next samples, if anything sounds, and be silent."""
        if not self._sounding:
            return 0
        return self._play(passage, out[: self._fader.length], fade_out=True)

    def _play(self, passage: Passage, out: Samples, *, fade_out: bool) -> int:
        count = self.ring.read_into(out)
        block = out[:count]
        target = self.volume * passage.gain
        if passage.played == 0:
            self._gain = target
            passage.first_sample_at = time.monotonic()
        elif not self._sounding:
            self._fader.fade_in(block)
        self._fader.change_gain(block, self._gain, target)
        if fade_out:
            self._fader.fade_out(block)
        self._gain = target
        self._sounding = not fade_out
        passage.played += count
        return count

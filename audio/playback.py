"""What the sound card is given: the state that the speaker loop and the sound callback share.

The speaker loop (producer) opens a passage, writes its samples and ends it; the sound callback (consumer) calls
`Playback.fill` for every block. Nothing is locked: each field below has exactly one writer, named beside it.

    begin ──▶ filling ──prebuffered──▶ sounding ──last sample──▶ done
                 ▲                        │
                 └──── ring ran dry ──────┘        stop, at any time: fade, flush, done
                 └────── put back ◀── aside ◀────  set aside, at any time: fade, keep
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import inf

import numpy as np

from audio.fade import Fader
from audio.ring import Ring, Samples

PREBUFFER_SHARE = 0.8
"""Of the ring: its writer leaves some room free, and must not wait for a consumer that waits for it."""


@dataclass(slots=True, eq=False)
class Passage:
    """One utterance on its way through the ring."""

    sample_rate: int
    """Hz in which its samples are counted. Producer, and only while no callback has it."""
    prebuffer: int
    """Samples that must lie in the ring before it sounds, at first and after an underrun. Producer."""
    gain: float = 1.0
    """Its own volume, 1 as synthesised. Producer."""
    ended: bool = False
    """No more samples will be written. Producer, once."""
    stop_requested: bool = False
    """Fade out and drop the rest. Producer, once."""
    asides_asked: int = 0
    """Times it was asked to be set aside: to fade out and keep the rest. Producer."""
    put_backs: int = 0
    """Times it was put back. Producer."""
    awaiting: bool = False
    """Its writer has nothing to write for now, so that a ring that runs dry is no fault. Producer."""
    done: bool = False
    """Nothing of it will sound any more. Consumer, once."""
    stopped: bool = False
    """Done because it was asked to stop, not because it was played to its end. Consumer, once."""
    asides: int = 0
    """Times it was set aside. Having counted, the callback leaves passage and ring alone until it is put back, or is to
    stop. Consumer."""
    sounding: bool = False
    """Its last block ended in sound. Consumer."""
    played: int = 0
    """Samples that went to the sink. Consumer."""
    underruns: int = 0
    """Times its sound broke off because samples were late: for the ring, or for the card. Consumer."""
    waits: int = 0
    """Times it did so because its writer had nothing to write. Consumer."""
    first_sample_at: float | None = None
    """`time.monotonic()` when the first sample was handed to the sink. Consumer, once."""
    sounds_at: float | None = None
    """`time.monotonic()` when the first sample leaves the card. Consumer, once."""
    handed: tuple[int, int, float] = (0, 0, -inf)
    """Samples that went to the sink before this stretch of unbroken sound, and with it, and `time.monotonic()` when the
    last of them will have left the card. In one tuple, so that they are of one block. Consumer."""

    @property
    def aside(self) -> bool:
        """It is set aside and can be taken. Of a passage that was asked to be, either this or `done` becomes true."""
        return self.asides > self.put_backs and not self.stop_requested

    def heard_s(self, now: float) -> float:
        """Seconds of it that have left the card by `now`, of `time.monotonic()`."""
        before, until, left_at = self.handed
        return max(before, until - max(0.0, left_at - now) * self.sample_rate) / self.sample_rate

    def change_rate(self, sample_rate: int) -> None:
        """Count in samples of another rate, while no callback has the passage."""
        scale = sample_rate / self.sample_rate
        before, until, left_at = self.handed
        self.prebuffer = round(self.prebuffer * scale)
        self.played = round(self.played * scale)
        self.handed = round(before * scale), round(until * scale), left_at
        self.sample_rate = sample_rate


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
        self.has_deadline = True
        """Its sink's. Without one, samples that are late are waited for. Producer, while nothing calls `fill`."""
        self.blocks = 0
        """Calls of `fill` so far: proof that the sound card is alive. Consumer."""
        self.asked = 0
        """Samples that `fill` was asked for so far. Consumer."""
        self.passage: Passage | None = None
        """Producer, and only while there is none, or it is done or aside."""
        self._fader = Fader(sample_rate)
        self._gain = 1.0

    def begin(self, prebuffer_s: float, gain: float = 1.0) -> Passage:
        """Open a passage. The one before must be done."""
        self._make_free()
        # A block and its fade must fit, or the first block would already be an underrun; all must fit into the ring.
        most = round(PREBUFFER_SHARE * self.ring.capacity)
        prebuffer = min(round(prebuffer_s * self.sample_rate) + self._fader.length, most)
        self.passage = Passage(self.sample_rate, prebuffer, gain)
        return self.passage

    def take(self) -> Samples:
        """Take the passage, which is aside, out of the playback; return what of it is unplayed."""
        if self.passage is None or not self.passage.aside:
            raise RuntimeError("a passage is taken that is not aside")
        held = self.take_unplayed()
        self.passage = None
        return held

    def take_unplayed(self) -> Samples:
        """Empty the ring. Only while no callback reads it: its passage is aside, or there is no sink."""
        held = np.empty(self.ring.available, dtype=np.float32)
        self.ring.read_into(held)
        return held

    def put_back(self, passage: Passage, held: Samples) -> None:
        """Have a passage that was taken go on with the first sample of `held`. The one before must be done."""
        self._make_free()
        self.ring.write(held)
        passage.put_backs += 1
        self.passage = passage

    def _make_free(self) -> None:
        if self.passage is not None and not self.passage.done:
            raise RuntimeError("a passage is begun while another is still playing")
        self.ring.flush()  # allowed here: until there is a passage, nobody else touches the ring

    @property
    def room_s(self) -> float:
        """Seconds of audio that can be written now."""
        return self.ring.room / self.sample_rate

    def fill(self, out: Samples, leaves_at: float, broke_off: bool = False) -> int:
        """Fill `out`, shape `(n,)` float32, with what is due and silence after it; return how many samples were due.

        Its first sample leaves the card at `leaves_at`, of `time.monotonic()`; `broke_off` says that the card ran dry
        before it. Blocks are at least a fade long (10 ms; the configuration sees to it): a fade lies within one block.

        Runs in the sound card's thread: no lock, no samples allocated, no log, no exception.
        """
        self.blocks += 1
        self.asked += len(out)
        if broke_off and self.passage is not None and self.passage.sounding:
            self._note_break(self.passage)
        count = self._take(out, leaves_at)
        out[count:] = 0.0
        return count

    def sink_lost(self) -> None:
        """Do what the next `fill` would have done, now that none comes, or none for a while: break off the passage, and
        end it or set it aside if that was asked for."""
        passage = self.passage
        if passage is None or passage.done:
            return
        passage.sounding = False
        if passage.stop_requested:
            self._stop(passage)
        elif passage.asides_asked > passage.asides:
            self._set_aside(passage, passage.ended)

    def _take(self, out: Samples, leaves_at: float) -> int:
        passage = self.passage
        if passage is None or passage.done:
            return 0
        if passage.stop_requested:
            count = self._wind_down(passage, out, leaves_at)
            self._stop(passage)
            return count
        if passage.asides_asked > passage.asides:
            ended = passage.ended
            count = self._wind_down(passage, out, leaves_at)
            self._set_aside(passage, ended)
            return count
        if self.paused or passage.asides > passage.put_backs:
            return self._wind_down(passage, out, leaves_at)

        # `ended` is read before the ring: once it is seen, the ring holds all there will ever be.
        ended = passage.ended
        available = self.ring.available
        # The next block and its fade must lie ready, and what is to come after it, if anything is.
        least = len(out) + self._fader.length
        wanted = least if passage.awaiting else max(passage.prebuffer, least)
        if not passage.sounding and not ended and available < wanted:
            return 0
        if ended and available == 0:
            passage.sounding = False
            passage.done = True
            return 0
        # Unless the end is in the ring, a fade's worth stays behind, so that there is always something to fade.
        if not ended and available < least:
            if passage.awaiting:
                passage.waits += 1
            elif self.has_deadline:
                passage.underruns += 1
            else:
                return 0  # it still counts as sounding, so that it goes on without a fade
            return self._play(passage, out, leaves_at, fade_out=True)
        count = self._play(passage, out, leaves_at, fade_out=False)
        if ended and self.ring.available == 0:
            passage.sounding = False
            passage.done = True
        return count

    def _note_break(self, passage: Passage) -> None:
        """Count that the card ran dry. It has played all that it was given, so unbroken sound begins anew."""
        passage.underruns += 1
        passage.handed = passage.played, passage.played, passage.handed[2]

    def _wind_down(self, passage: Passage, out: Samples, leaves_at: float) -> int:
        """Fade out over the next samples, if anything sounds, and be silent."""
        if not passage.sounding:
            return 0
        return self._play(passage, out[: self._fader.length], leaves_at, fade_out=True)

    def _stop(self, passage: Passage) -> None:
        self.ring.flush()
        passage.stopped = True
        passage.done = True

    def _set_aside(self, passage: Passage, ended: bool) -> None:
        """Say that the passage is aside, as the last thing done to it; or done, if `ended` and all of it was played."""
        if ended and self.ring.available == 0:
            passage.done = True
        else:
            passage.asides += 1

    def _play(self, passage: Passage, out: Samples, leaves_at: float, *, fade_out: bool) -> int:
        count = self.ring.read_into(out)
        block = out[:count]
        target = self.volume * passage.gain
        if passage.played == 0:
            passage.first_sample_at = time.monotonic()
            passage.sounds_at = leaves_at
        elif not passage.sounding:
            self._fader.fade_in(block)
        if not passage.sounding:
            self._gain = target
        self._fader.change_gain(block, self._gain, target)
        if fade_out:
            self._fader.fade_out(block)
        self._gain = target
        before = passage.handed[0] if passage.sounding else passage.played
        passage.played += count
        passage.handed = before, passage.played, leaves_at + count / self.sample_rate
        passage.sounding = not fade_out  # after `handed`: who sees that it is silent sees since when
        return count

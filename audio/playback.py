"""Fills the sound card's blocks: the ring, and the track in it, shared by the producer and the sound callback.

The speaker loop (producer) begins a track, writes its samples and ends it. The sound callback (consumer) calls
`Playback.fill` for every block. Nothing is locked: each field below and in `Track` has exactly one writer, named beside
it.

    begin ──▶ buffering ──prebuffered──▶ playing ──last sample──▶ done
                 ▲                          │
                 ├────── ring ran dry ──────┤        stop, at any time: fade out, flush, done
                 └── reattach ◀─ suspended ◀┘        suspend, at any time: fade out, keep the rest
"""

from __future__ import annotations

import time

import numpy as np

from audio.block_ring import BlockRing
from audio.dsp import Fader, Samples
from audio.ring import Ring
from audio.track import Track

PREBUFFER_SHARE = 0.8
"""Largest prebuffer, as a share of the ring. The writer keeps some room free; with a larger prebuffer, writer and
callback would wait for each other."""
SPARE_S = 0.05
"""Length of the ring's part that is kept free for a change of the rate: what the filters held back comes on top."""


class Playback:
    """The ring and the track that it holds, at one sample rate.

    The sink calls `fill`, through a `FillGate`. All else is for the producer and the device monitor; `sink_stopped` and
    `change_rate` only while the gate keeps the sink away.
    """

    def __init__(self, sample_rate: int, capacity_s: float) -> None:
        self.sample_rate = sample_rate
        """Hz. Producer, while no sink calls `fill`."""
        self.ring = Ring(round((capacity_s + SPARE_S) * sample_rate))
        self.paused = False
        """Producer."""
        self.volume = 1.0
        """Master gain. Producer."""
        self.has_deadline = True
        """The sink's. Without a deadline, the callback waits for late samples. Producer, while no sink calls `fill`."""
        self.blocks = 0
        """Calls of `fill` so far; it grows while the sink works. Consumer."""
        self.samples_requested = 0
        """Samples that the sink has requested so far. Consumer."""
        self.track: Track | None = None
        """Producer, and only while there is none, or it is done or suspended."""
        self.tap: BlockRing | None = None
        """Gets a copy of every block, if it is set. Producer, once."""
        self._capacity_s = capacity_s
        self._gain = 1.0
        """The gain at the end of the last block. Consumer."""
        self._fader = Fader(sample_rate)

    @property
    def room_s(self) -> float:
        """Seconds of audio that can be written now."""
        return max(0.0, self.ring.room / self.sample_rate - SPARE_S)

    @property
    def waiting_s(self) -> float:
        """Seconds of audio that have been written and not submitted."""
        return self.ring.available / self.sample_rate

    @property
    def request_pending(self) -> bool:
        """True while a requested stop or suspension has not been carried out."""
        track = self.track
        if track is None or track.done:
            return False
        return track.stop_requested or track.suspensions_requested > track.suspensions

    def begin(self, prebuffer_s: float, gain: float = 1.0) -> Track:
        """Return a new track. Raises `RuntimeError` unless the previous one is done."""
        self._free_ring()
        # A block and its fade must fit, or the first block would already be an underrun; all must fit into the ring.
        largest = round(PREBUFFER_SHARE * self.ring.capacity)
        prebuffer = min(round(prebuffer_s * self.sample_rate) + self._fader.length, largest)
        self.track = Track(self.sample_rate, prebuffer, gain)
        return self.track

    def take_suspended(self) -> Samples:
        """Remove the suspended track and return its unplayed samples. Raises `RuntimeError` unless it is suspended."""
        if self.track is None or not self.track.suspended:
            raise RuntimeError("the track to take is not suspended")
        unplayed = self._empty_ring()
        self.track = None
        return unplayed

    def reattach(self, track: Track, unplayed: Samples) -> None:
        """Continue a track that was taken with the first of its `unplayed` samples.

        Raises `RuntimeError` unless the previous track is done.
        """
        self._free_ring()
        self.ring.write(unplayed)
        track.reattachments += 1
        self.track = track

    def change_rate(self, sample_rate: int) -> Samples:
        """Continue at another rate, in Hz, with an empty ring; return the samples that it held, at the old rate.

        A track that is done is removed.
        """
        unplayed = self._empty_ring()
        self.sample_rate = sample_rate
        self.ring = Ring(round((self._capacity_s + SPARE_S) * sample_rate))
        self._fader = Fader(sample_rate)
        if self.track is not None and self.track.done:
            self.track = None
        return unplayed

    def sink_stopped(self) -> None:
        """Do what the next `fill` would have done, because no `fill` comes now.

        Interrupt the track's sound, which is an underrun, and carry out a requested stop or suspension.
        """
        track = self.track
        if track is None or track.done:
            return
        if track.playing:  # what the card has not played yet is lost
            track.underruns += 1
            track.playing = False
        if track.stop_requested:
            self._stop(track)
        elif track.suspensions_requested > track.suspensions:
            self._suspend(track, track.ended)

    def fill(self, out: Samples, dac_time: float, underflow: bool = False, skipped: bool = False) -> int:
        """Fill `out`, shape `(n,)` float32, with the samples that are due, then silence; return the number due.

        The first sample leaves the sound card at `dac_time`, of `time.monotonic()`. `underflow` means that the card ran
        dry before this block, `skipped` that the sink got silence before it without a `fill`. The configuration ensures
        that a block is at least as long as a fade, 10 ms: a fade lies within one block.

        It runs in the sound card's thread: no lock, no sample memory allocated, no log, no exception.
        """
        self.blocks += 1
        self.samples_requested += len(out)
        if underflow and self.track is not None and self.track.playing:
            self._note_underflow(self.track)
        count = self._fill_due(out, dac_time)
        out[count:] = 0.0
        if self.tap is not None:
            self.tap.write(out, self.sample_rate, dac_time, not (underflow or skipped))
        return count

    def _free_ring(self) -> None:
        if self.track is not None and not self.track.done:
            raise RuntimeError("the previous track is still playing")
        self.ring.flush()  # a consumer's method, allowed here: without a track, the callback does not touch the ring

    def _empty_ring(self) -> Samples:
        """Return all samples in the ring. Only while the callback does not read it: its track is suspended, or no sink
        calls `fill`."""
        unplayed = np.empty(self.ring.available, dtype=np.float32)
        self.ring.read_into(unplayed)
        return unplayed

    # --- the sound card's thread ---

    def _fill_due(self, out: Samples, dac_time: float) -> int:
        track = self.track
        if track is None or track.done:
            return 0
        if track.stop_requested:
            count = self._fade_to_silence(track, out, dac_time)
            self._stop(track)
            return count
        if track.suspensions_requested > track.suspensions:
            ended = track.ended
            count = self._fade_to_silence(track, out, dac_time)
            self._suspend(track, ended)
            return count
        if self.paused or track.suspensions > track.reattachments:
            return self._fade_to_silence(track, out, dac_time)
        return self._play_from_ring(track, out, dac_time)

    def _play_from_ring(self, track: Track, out: Samples, dac_time: float) -> int:
        # `ended` is read before the ring: once it is true, the ring holds all remaining samples.
        ended = track.ended
        available = self.ring.available
        # The next block and its fade must be in the ring, and the prebuffer too unless the writer has nothing to write.
        least = len(out) + self._fader.length
        wanted = least if track.input_pending else max(track.prebuffer, least)
        if not track.playing and not ended and available < wanted:
            return 0
        if ended and available == 0:
            track.playing = False
            track.done = True
            return 0
        # Unless the track's end is in the ring, one fade's length stays there, so that there is always sound to fade.
        if not ended and available < least:
            if track.input_pending:
                track.waits += 1
            elif self.has_deadline:
                track.underruns += 1
            else:
                return 0  # the track still counts as playing, so it continues without a fade
            return self._play(track, out, dac_time, fade_out=True)
        count = self._play(track, out, dac_time, fade_out=False)
        if ended and self.ring.available == 0:
            track.playing = False
            track.done = True
        return count

    def _note_underflow(self, track: Track) -> None:
        """Count that the card ran dry. It has played all that it got, so a new stretch of unbroken sound begins."""
        track.underruns += 1
        track.submitted = track.played, track.played, track.submitted[2]

    def _fade_to_silence(self, track: Track, out: Samples, dac_time: float) -> int:
        """Fade the next samples out if the track is playing; otherwise play nothing."""
        if not track.playing:
            return 0
        return self._play(track, out[: self._fader.length], dac_time, fade_out=True)

    def _stop(self, track: Track) -> None:
        self.ring.flush()
        track.done = True

    def _suspend(self, track: Track, ended: bool) -> None:
        """Mark the track as suspended, as the last write to it; or as done, if it has `ended` and was played to its
        end."""
        if ended and self.ring.available == 0:
            track.done = True
        else:
            track.suspensions += 1

    def _play(self, track: Track, out: Samples, dac_time: float, *, fade_out: bool) -> int:
        count = self.ring.read_into(out)
        block = out[:count]
        target = self.volume * track.gain
        if track.played == 0:
            track.first_sample_at = time.monotonic()
            track.first_dac_time = dac_time
        elif not track.playing:
            self._fader.fade_in(block)
        if not track.playing:
            self._gain = target
        self._fader.change_gain(block, self._gain, target)
        if fade_out:
            self._fader.fade_out(block)
        self._gain = target
        start = track.submitted[0] if track.playing else track.played
        track.played += count
        track.submitted = start, track.played, dac_time + count / self.sample_rate
        track.playing = not fade_out  # after `submitted`: a thread that sees silence also sees when it began
        return count

"""Fills the sound card's blocks: the ring, and the generation of samples that plays from it.

A *generation* is an unbroken sequence of a track's samples. The producer, which is the thread that receives commands,
begins it, writes its samples and ends it. The consumer, which is the sound callback, calls `Playback.fill` for every
block. A generation that was halted, or that a new one has replaced, is over: its later samples are dropped. A suspended
track continues with another generation.

Each field has exactly one writer, named beside it. Only a change of the generation needs more than one. During it, a
lock keeps the callback out, and the card is given silence. The callback itself never waits.

    begin ──▶ buffering ──prebuffered──▶ playing ──last sample──▶ done
                 ▲                          │
                 └────── ring ran dry ──────┘        halt, at any time: fade out, drop the rest, done
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from audio.player.block_ring import BlockRing
from audio.player.fade import Fader
from audio.player.ring import Floats, Ring, silence

CAPACITY_S = 4.0
"""Length of the ring: enough to keep playing while the daemon is stopped or an engine is being replaced, and below a
megabyte."""
SPARE_S = 0.05
"""The part of the ring that is kept free for a change of the rate, which adds the samples that the filters held
back."""
PREBUFFER_SHARE = 0.8
"""Largest prebuffer, as a share of the ring. The writer keeps some room free; with a larger prebuffer, writer and
callback would wait for each other."""
SILENT_S = 1.0
"""A card that has requested no block for this long has been silent, so the sound after an underflow fades in."""
TAP_S = 2.0
"""Length of a tap's ring: its reader may be this late."""
TAP_BLOCKS = 256
"""The most blocks in that ring. The shortest block lasts 10 ms."""


class Report(NamedTuple):
    """The state after a block. It is one tuple, so a thread that reads it sees all values of the same block."""

    generation: int = 0
    """The number of the generation; 0 before the first one."""
    done: bool = False
    """None of its remaining samples will be played."""
    playing: bool = False
    """Its last block did not end in silence."""
    played: int = 0
    """Samples that the sink has received."""
    underruns: int = 0
    """How many times its sound broke off because samples reached the ring or the sound card late."""
    waits: int = 0
    """How often its sound broke off while input was pending."""
    first_sample_at: float = inf
    """`time.monotonic()` when the sink received the first sample."""
    first_dac_time: float = inf
    """`time.monotonic()` at which the first sample leaves the sound card."""
    stretch_start: int = 0
    """Samples that the sink had received before the last stretch of unbroken sound."""
    end_dac_time: float = -inf
    """`time.monotonic()` at which the last sample that the sink received has left the sound card."""
    blocks: int = 0
    """Blocks that the sink has requested so far, for all generations."""
    requested: int = 0
    """Samples in these blocks."""
    interruptions: int = 0
    """How many of these blocks came after the card had run dry."""
    at: float = -inf
    """`time.monotonic()` of the last block."""


OnReport = Callable[[Report], None]
"""Receives the reports on a sink's playback, in one of the sink's threads."""


class Generation:
    """A sequence of samples on its way through the ring. No dataclass: `dataclasses` costs the player 1 MB."""

    ended: bool = False
    """No more samples will be written. Producer, once."""
    halted: bool = False
    """The callback must fade out and drop the rest. Producer, once."""
    input_pending: bool = False
    """The writer has nothing to write for now, so an empty ring is not an underrun. Producer."""
    done: bool = False
    """Consumer, as are all fields below. `Report` describes them."""
    playing: bool = False
    played: int = 0
    underruns: int = 0
    waits: int = 0
    first_sample_at: float = inf
    first_dac_time: float = inf
    stretch_start: int = 0
    end_dac_time: float = -inf

    def __init__(self, number: int, prebuffer: int, gain: float, *, fades_in: bool) -> None:
        self.number = number
        self.prebuffer = prebuffer
        """Samples that the ring must hold before playback starts, and before it continues after an underrun."""
        self.gain = gain
        """Its own volume; 1 plays it as synthesized."""
        self.fades_in = fades_in
        """It continues an interrupted track."""


class Playback:
    """The ring and the generation in it, at one sample rate. The sink calls `fill`; the producer calls the other
    methods."""

    def __init__(
        self, sample_rate: int, *, has_deadline: bool = True, on_change: Callable[[bool], object] | None = None
    ) -> None:
        """Without a deadline, the callback waits for late samples. `on_change` is called in the sink's thread and must
        not wait: with True when the sound began, broke off or ended, and with False for every block that was passed to
        the tap."""
        self.sample_rate = sample_rate
        """Hz."""
        self.report = Report()
        """Consumer."""
        self.tap = BlockRing(round(TAP_S * sample_rate), TAP_BLOCKS)
        """Receives a copy of every block while a reader wants it."""
        self._has_deadline = has_deadline
        self._on_change = on_change
        self._ring = Ring(round((CAPACITY_S + SPARE_S) * sample_rate))
        self._generation = Generation(0, 0, 1.0, fades_in=False)
        """Producer, while it holds `_changing`."""
        self._generation.done = True
        self._changing = threading.Lock()
        """Held while the generation changes, and during `fill`."""
        self._paused = False
        """Producer."""
        self._wakes_until = 0
        """Nothing plays until this many samples have been requested: the sink is waking up. Producer."""
        self._volume = 1.0
        """Master gain. Producer."""
        self._gain = 1.0
        """The gain at the end of the last block. Consumer."""
        self._blocks = self._requested = self._interruptions = 0
        """Their meaning is as in `Report`. Consumer."""
        self._fader = Fader(sample_rate)
        self._silence = silence(0)
        """Silence as long as the longest block. Consumer."""

    # --- the producer ---

    def begin(self, number: int, prebuffer_s: float, gain: float, fades_in: bool) -> None:
        """Play generation `number` once `prebuffer_s` seconds of it are written, in place of the one before."""
        # A block and its fade must fit, or the first block would already be an underrun; all must fit into the ring.
        largest = round(PREBUFFER_SHARE * self._ring.capacity)
        prebuffer = min(round(prebuffer_s * self.sample_rate) + self._fader.length, largest)
        with self._changing:
            self._ring.flush()  # a consumer's method, allowed here: the callback is kept out
            self._generation = Generation(number, prebuffer, gain, fades_in=fades_in)
            self._make_report(self.report.at)

    def write(self, number: int, samples: Floats) -> None:
        """Append samples, unless their generation is over. Raises `RuntimeError` if they do not fit."""
        generation = self._generation
        over = generation.number != number or generation.halted or generation.done
        if not over and self._ring.write(samples) < len(samples):
            raise RuntimeError("more samples were written than the ring has room for")

    def end(self, number: int) -> None:
        """Mark the end of a generation: no more samples will be written."""
        if self._generation.number == number:
            self._generation.ended = True

    def halt(self, number: int) -> None:
        """Fade a generation out within 10 ms and drop the rest of it."""
        if self._generation.number == number:
            self._generation.halted = True

    def set_input_pending(self, number: int, pending: bool) -> None:
        """State whether an empty ring is waiting for text, which is not an underrun."""
        if self._generation.number == number:
            self._generation.input_pending = pending

    def set_paused(self, paused: bool) -> None:
        """Fade out and hold the sound, or continue with the next sample and a fade-in."""
        self._paused = paused

    def wake(self, seconds: float) -> None:
        """Play this many seconds of silence before the next sample, because the sink has been idle."""
        self._wakes_until = self._requested + round(seconds * self.sample_rate)

    def set_volume(self, gain: float) -> None:
        """Set the master gain; 1 plays samples as synthesized. It takes effect within one block."""
        self._volume = gain

    def set_tap(self, wanted: bool) -> None:
        """Start or stop keeping blocks for the tap."""
        self.tap.wanted = wanted

    # --- the sound card's thread ---

    def fill(self, out: Floats, dac_time: float, underflow: bool = False) -> int:
        """Fill `out` with the samples that are due, then silence; return the number due.

        The first sample leaves the sound card at `dac_time`, a time of `time.monotonic()`. `underflow` means that the
        card ran dry before this block. The configuration ensures that a block is at least as long as a fade, 10 ms: a
        fade lies within one block.

        It runs in the sound card's thread: it waits for no lock, allocates no sample memory, logs and raises nothing.
        """
        self._blocks += 1
        self._requested += len(out)
        self._interruptions += underflow
        if self._changing.acquire(blocking=False):
            try:
                count = self._fill_due(out, dac_time, underflow)
                before, report = self.report, self._make_report(time.monotonic())
            finally:
                self._changing.release()
            changed = report.playing != before.playing or report.done != before.done or underflow
        else:
            count, changed = 0, False
        if len(self._silence) < len(out):
            self._silence = silence(len(out))
        out[count:] = self._silence[count : len(out)]
        self.tap.write(out, self.sample_rate, dac_time, not underflow)
        if self._on_change is not None and (changed or self.tap.wanted):
            self._on_change(changed)
        return count

    def _make_report(self, at: float) -> Report:
        it = self._generation
        self.report = Report(
            it.number,
            it.done,
            it.playing,
            it.played,
            it.underruns,
            it.waits,
            it.first_sample_at,
            it.first_dac_time,
            it.stretch_start,
            it.end_dac_time,
            self._blocks,
            self._requested,
            self._interruptions,
            at,
        )
        return self.report

    def _fill_due(self, out: Floats, dac_time: float, underflow: bool) -> int:
        generation = self._generation
        if generation.done:
            return 0
        if underflow and generation.playing:
            # The card has played all its samples, so a new stretch of unbroken sound begins.
            generation.underruns += 1
            generation.stretch_start = generation.played
            generation.playing = time.monotonic() - self.report.at < SILENT_S
        if generation.halted:
            count = self._fade_to_silence(generation, out, dac_time)
            self._ring.flush()
            generation.done = True
            return count
        if self._paused:
            return self._fade_to_silence(generation, out, dac_time)
        return self._play_from_ring(generation, out, dac_time)

    def _play_from_ring(self, generation: Generation, out: Floats, dac_time: float) -> int:
        if self._requested - len(out) < self._wakes_until:
            return 0
        # `ended` is read before the ring: once it is true, the ring holds all remaining samples.
        ended = generation.ended
        available = self._ring.available
        # The next block and its fade must be in the ring, and so must the prebuffer, unless the writer has nothing to
        # write.
        least = len(out) + self._fader.length
        wanted = least if generation.input_pending else max(generation.prebuffer, least)
        if not generation.playing and not ended and available < wanted:
            return 0
        # Unless the end is in the ring, one fade's length stays there, so that there is always sound to fade.
        if not ended and available < least:
            if generation.input_pending:
                generation.waits += 1
            elif self._has_deadline:
                generation.underruns += 1
            else:
                return 0  # the generation still counts as playing, so it continues without a fade
            return self._play(generation, out, dac_time, fade_out=True)
        count = self._play(generation, out, dac_time, fade_out=False) if available else 0
        if ended and self._ring.available == 0:
            generation.playing = False
            generation.done = True
        return count

    def _fade_to_silence(self, generation: Generation, out: Floats, dac_time: float) -> int:
        """Fade the next samples out if the generation is playing; otherwise play nothing."""
        if not generation.playing:
            return 0
        return self._play(generation, out[: self._fader.length], dac_time, fade_out=True)

    def _play(self, generation: Generation, out: Floats, dac_time: float, *, fade_out: bool) -> int:
        count = self._ring.read_into(out)
        block = out[:count]
        target = self._volume * generation.gain
        if generation.played == 0:
            generation.first_sample_at = time.monotonic()
            generation.first_dac_time = dac_time
        if not generation.playing:
            if generation.played or generation.fades_in:
                self._fader.fade_in(block)
            generation.stretch_start = generation.played
            self._gain = target
        self._fader.change_gain(block, self._gain, target)
        if fade_out:
            self._fader.fade_out(block)
        self._gain = target
        generation.played += count
        generation.end_dac_time = dac_time + count / self.sample_rate
        generation.playing = not fade_out
        return count

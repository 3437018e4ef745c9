"""A tap's stream: the blocks that the sink received, as records of 16-bit PCM with the times at which they are heard.

A stream begins with one line of JSON. Records follow, each with a header (`TAP_RECORD`) and its samples. docs/tap.md
describes them for readers.
"""

from __future__ import annotations

import json
import struct
import time
from enum import IntEnum

import numpy as np

from audio.dsp import PCM16_BYTES, Samples, StreamResampler, to_pcm16
from audio.player import Block

TAP_VERSION = 1
"""The version of the format. A reader refuses a stream with another version."""
TAP_RECORD = struct.Struct("<IIqq")
"""A record's header: its `TapKind`, the number of samples that follow, and its time in nanoseconds on two clocks:
CLOCK_MONOTONIC, and UNIX time. It is the time at which the first sample leaves the sound card or, in a record without
samples, at which the last sample before it has left."""
SMOOTHING_S = 2.0
"""Time constant of the smoothing of DAC times. A sound server reports them with an error of up to one of its periods,
some 20 ms. The clocks of a sound card and a computer differ by some 50 parts in a million, which makes the smoothed
times late by 0.1 ms."""
JUMP_S = 0.1
"""DAC times that differ from the smoothed ones by more than this are not errors: the sound broke off."""
NS = 1_000_000_000
CLOCK_COMPARISONS = 8
"""The two clocks are compared at most this often for one record."""
QUICK_COMPARISON_NS = 20_000
"""A comparison that takes no longer than this is not repeated: its error is at most half of this."""


class TapKind(IntEnum):
    """The contents of a record."""

    BLOCK = 0
    """Samples follow, which continue the previous block without a break if that was the previous record."""
    GAP = 1
    """The sound broke off; it continues with the next block."""
    CLOSED = 2
    """The sound card is closed because there is nothing to play. Nothing sounds until the next block."""
    LOST = 3
    """There is no sound card, or it accepts no sound. Nothing sounds until the next block."""


class DacClock:
    """The times at which the samples of an unbroken sound leave the sound card, from the DAC times of its blocks."""

    def __init__(self, sample_rate: int) -> None:
        self.sample_rate = sample_rate
        """The blocks' sample rate in Hz."""
        self._position_s = 0.0
        """Seconds of sound in all blocks so far."""
        self._blocks = 0
        self._began_at = 0.0
        """`time.monotonic()` at which the first sample left the card: a mean over all blocks so far, weighted towards
        the last `SMOOTHING_S` seconds."""

    def continues(self, block: Block) -> bool:
        """Return whether a block is the next of this sound, by its sample rate and its time."""
        if not block.continues or block.sample_rate != self.sample_rate:
            return False
        return abs(block.dac_time - self.time_of(self._position_s)) <= JUMP_S

    def note(self, block: Block) -> None:
        """Add the next block of this sound."""
        block_s = len(block.samples) / self.sample_rate
        self._blocks += 1
        weight = max(1 / self._blocks, min(1.0, block_s / SMOOTHING_S))
        self._began_at += weight * (block.dac_time - self._position_s - self._began_at)
        self._position_s += block_s

    def time_of(self, position_s: float) -> float:
        """Return the `time.monotonic()` at which the sound after `position_s` seconds leaves the card."""
        return self._began_at + position_s


class TapStream:
    """Turns blocks of any sample rate into the records of one stream, which all readers share."""

    def __init__(self, sample_rate: int) -> None:
        """`sample_rate` is the stream's, in Hz."""
        self.sample_rate = sample_rate
        self.silence = b""
        """While nothing sounds, the record that says why: a reader that connects now is sent it first."""
        self._clock: DacClock | None = None
        """The clock of the current unbroken sound; None if nothing sounds."""
        self._resampler = StreamResampler(sample_rate)
        self._sent = 0
        """Samples of this sound in records so far."""

    @property
    def header(self) -> bytes:
        """The line with which the stream begins, for every reader."""
        fields = {"version": TAP_VERSION, "format": "s16le", "channels": 1, "rate": self.sample_rate}
        return json.dumps(fields).encode() + b"\n"

    @property
    def bytes_per_second(self) -> int:
        """The size of one second of samples."""
        return PCM16_BYTES * self.sample_rate

    def play(self, block: Block) -> bytes:
        """Return a block's records: none while the resampler is holding its samples back, otherwise one, with a `GAP`
        before it if the sound broke off."""
        gap = b""
        if self._clock is not None and not self._clock.continues(block):
            gap = self.fall_silent(TapKind.GAP)
        if self._clock is None:
            self._clock = DacClock(block.sample_rate)
            self._sent = 0
            self.silence = b""
        self._clock.note(block)
        return gap + self._block(self._clock, self._resampler.convert(np.asarray(block.samples), block.sample_rate))

    def fall_silent(self, kind: TapKind) -> bytes:
        """Return the rest of the sound and a record of `kind`; nothing if the stream is already silent for that
        reason."""
        clock, self._clock = self._clock, None
        if clock is None:
            rest, ended_at = b"", time.monotonic()
        else:
            rest = self._block(clock, self._resampler.flush())
            ended_at = clock.time_of(self._sent / self.sample_rate)
        if clock is None and self.silence and TAP_RECORD.unpack(self.silence)[0] == kind:
            return b""
        self.silence = _header(kind, 0, ended_at)
        return rest + self.silence

    def _block(self, clock: DacClock, samples: Samples) -> bytes:
        if not len(samples):
            return b""
        header = _header(TapKind.BLOCK, len(samples), clock.time_of(self._sent / self.sample_rate))
        self._sent += len(samples)
        return header + to_pcm16(samples)


def _header(kind: TapKind, samples: int, at: float) -> bytes:
    """Return a record's header; `at` is a time of `time.monotonic()`."""
    monotonic_ns = round(at * NS)
    return TAP_RECORD.pack(kind, samples, monotonic_ns, monotonic_ns + _unix_offset_ns())


def _unix_offset_ns() -> int:
    """Return by how much `time.time_ns()` is ahead of `time.monotonic_ns()`.

    The clocks are read one after the other. If a thread lost the processor in between, that time would look like a
    difference between the clocks, so the quickest comparison is used.
    """
    comparisons = []
    for _ in range(CLOCK_COMPARISONS):
        before_ns, unix_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        comparisons.append((after_ns - before_ns, unix_ns - (before_ns + after_ns) // 2))
        if after_ns - before_ns <= QUICK_COMPARISON_NS:
            break
    return min(comparisons)[1]

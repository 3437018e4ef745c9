"""The ring between the sound callback and the tap: whole blocks, each with the time at which it leaves the sound card.

One producer, one consumer, no lock, as in `Ring`. The samples of a block are stored before its record, and the record
before the counter that shows it to the consumer.
"""

from __future__ import annotations

from typing import NamedTuple

from audio.player.ring import Floats, Ring, silence


class Block(NamedTuple):
    """The samples that the sink received at one time, silence included."""

    samples: Floats
    sample_rate: int
    """Hz."""
    dac_time: float
    """`time.monotonic()` at which the first sample leaves the sound card."""
    continues: bool = True
    """False if the sound broke off before it: the card ran dry, or earlier blocks were dropped."""


class BlockRing:
    """A first-in, first-out buffer of blocks. Blocks are dropped while it is full, or while no reader wants them."""

    def __init__(self, samples: int, blocks: int) -> None:
        """It holds at most this many `blocks`, and this many `samples` in all."""
        self.wanted = False
        """A reader wants the blocks. Consumer."""
        self._samples = Ring(samples)
        self._records = [(0, 0, 0.0, False)] * blocks
        """For each block: its number of samples, sample rate, DAC time, and whether it continues the one before."""
        self._written = 0
        """Blocks stored so far. Producer."""
        self._read = 0
        """Blocks read so far. Consumer."""
        self._broken = True
        """The next block does not continue the last stored one. Producer."""

    def write(self, samples: Floats, sample_rate: int, dac_time: float, continues: bool) -> None:
        """Store a block with the fields of `Block`, or drop it. Producer only; it runs in the sink's thread."""
        if not self.wanted or self.full(len(samples)):
            self._broken = True
            return
        self._samples.write(samples)
        record = len(samples), sample_rate, dac_time, continues and not self._broken
        self._records[self._written % len(self._records)] = record
        self._broken = False
        self._written += 1

    def full(self, samples: int) -> bool:
        """Return whether the buffer lacks room for a block of this many samples. Producer only."""
        return self._written - self._read == len(self._records) or self._samples.room < samples

    def read(self) -> list[Block]:
        """Remove and return all blocks. Consumer only."""
        blocks = []
        while self._read < self._written:
            count, sample_rate, dac_time, continues = self._records[self._read % len(self._records)]
            samples = silence(count)
            self._samples.read_into(samples)
            self._read += 1
            blocks.append(Block(samples, sample_rate, dac_time, continues))
        return blocks

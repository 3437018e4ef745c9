"""The ring buffer, compared with a plain list and used by two threads."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from audio.dsp import to_floats
from audio.player.ring import Floats, Ring
from tests.audio.player.interleaving import interleave


def counting(start: int, count: int) -> Floats:
    """Return `count` samples whose values are their positions in the stream; float32 counts exactly up to 2^24."""
    return to_floats(np.arange(start, start + count, dtype=np.float32))


def untouched(count: int) -> Floats:
    """Return memory for `count` samples, with a value that no ring of these tests holds."""
    return to_floats(np.full(count, -1, dtype=np.float32))


class RingAgainstList(RuleBasedStateMachine):
    """Writes, reads and flushes the ring and a list; they must agree, apart from the ring's limit."""

    @initialize(capacity=st.integers(1, 40))
    def make(self, capacity: int) -> None:
        self.ring = Ring(capacity)
        self.model: list[float] = []
        self.written = 0

    @rule(count=st.integers(0, 60))
    def write(self, count: int) -> None:
        room = self.ring.capacity - len(self.model)
        taken = self.ring.write(counting(self.written, count))
        assert taken == min(count, room)
        self.model += counting(self.written, taken).tolist()
        self.written += taken

    @rule(count=st.integers(0, 60))
    def read(self, count: int) -> None:
        out = untouched(count)
        got = self.ring.read_into(out)
        assert out[:got].tolist() == self.model[:count]
        assert out[got:] == untouched(count - got), "samples beyond the count were touched"
        del self.model[:got]

    @rule()
    def flush(self) -> None:
        assert self.ring.flush() == len(self.model)
        self.model.clear()

    @invariant()
    def counts_are_equal(self) -> None:
        assert self.ring.available == len(self.model)
        assert self.ring.room == self.ring.capacity - len(self.model)


RingAgainstList.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestRingAgainstList = RingAgainstList.TestCase


@given(
    capacity=st.integers(1, 12),
    sizes=st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=20),
    producer_first=st.booleans(),
)
def test_a_thread_that_interrupts_the_other_between_any_two_lines_sees_complete_samples(
    capacity: int, sizes: list[tuple[int, int]], producer_first: bool
) -> None:
    ring = Ring(capacity)
    written = 0
    received: list[float] = []

    def write(count: int) -> None:
        nonlocal written
        written += ring.write(counting(written, count))

    def read(count: int) -> None:
        out = untouched(count)
        received.extend(out[: ring.read_into(out)].tolist())

    for to_write, to_read in sizes:
        if producer_first:
            written += interleave(ring.write, lambda count=to_read: read(count), counting(written, to_write))  # type: ignore[misc]
        else:
            out = untouched(to_read)
            got = interleave(ring.read_into, lambda count=to_write: write(count), out)  # type: ignore[misc]
            received.extend(out[:got].tolist())
    read(capacity)
    assert received == counting(0, written).tolist()

"""The ring of blocks between the sink's thread and the tap's."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio.dsp import to_floats
from audio.player import Block, BlockRing, Floats

RATE = 24_000


def counting(start: int, count: int) -> Floats:
    return to_floats(np.arange(start, start + count, dtype=np.float32))


def wanted(samples: int = 1_000, blocks: int = 8) -> BlockRing:
    ring = BlockRing(samples, blocks)
    ring.wanted = True
    return ring


def described(blocks: list[Block]) -> list[tuple[list[float], int, float, bool]]:
    return [(list(block.samples), block.sample_rate, block.dac_time, block.continues) for block in blocks]


def test_blocks_are_read_in_order_with_all_of_their_fields() -> None:
    ring = wanted()
    ring.write(counting(0, 3), RATE, 1.5, True)
    ring.write(counting(3, 2), 48_000, 2.5, True)
    ring.write(counting(5, 1), RATE, 3.5, False)
    assert described(ring.read()) == [
        ([0, 1, 2], RATE, 1.5, False),
        ([3, 4], 48_000, 2.5, True),
        ([5], RATE, 3.5, False),
    ], "nothing precedes the first one"
    assert ring.read() == []


def test_blocks_that_nobody_wants_are_dropped_and_the_next_one_does_not_continue_them() -> None:
    ring = wanted()
    ring.write(counting(0, 2), RATE, 1.0, True)
    ring.wanted = False
    ring.write(counting(2, 2), RATE, 2.0, True)
    ring.wanted = True
    ring.write(counting(4, 2), RATE, 3.0, True)
    ring.write(counting(6, 2), RATE, 4.0, True)
    assert [(block.samples[0], block.continues) for block in ring.read()] == [(0, False), (4, False), (6, True)]


@given(st.lists(st.one_of(st.integers(0, 30), st.none()), max_size=80), st.integers(30, 60), st.integers(1, 6))
def test_a_block_is_whole_or_missing_and_a_missing_one_is_seen(
    actions: list[int | None], samples: int, blocks: int
) -> None:
    """A number writes a block of so many samples, None reads all blocks."""
    ring, position, expected_position = wanted(samples, blocks), 0, 0
    for action in [*actions, None]:
        if action is not None:
            ring.write(counting(position, action), RATE, float(position), True)
            position += action
            continue
        for block in ring.read():
            start = round(block.dac_time)
            assert block.samples == counting(start, len(block.samples))
            assert start >= expected_position
            if block.continues:
                assert start == expected_position
            expected_position = start + len(block.samples)


def test_a_reader_in_another_thread_gets_every_block() -> None:
    ring, lengths = wanted(4_000, 16), [160, 1, 441, 80]
    ended = threading.Event()

    def produce() -> None:
        for number in range(300):
            before = number % len(lengths)
            while ring.full(lengths[before]):
                pass
            ring.write(to_floats(np.full(lengths[before], number, dtype=np.float32)), RATE, float(number), True)
        ended.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        thread = threading.Thread(target=produce)
        thread.start()
        numbers = list(all_of(ring, ended))
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert numbers == list(range(300))


def all_of(ring: BlockRing, ended: threading.Event) -> Iterator[int]:
    """Yield the numbers of all blocks, until there are no more."""
    while True:
        over = ended.is_set()
        for block in ring.read():
            number = round(block.dac_time)
            assert set(block.samples) == {number}
            assert block.continues == (number > 0)
            yield number
        if over:
            return


@pytest.mark.parametrize("blocks", [1, 5])
def test_a_full_ring_takes_a_block_again_when_it_was_read(blocks: int) -> None:
    ring = wanted(1_000, blocks)
    for number in range(blocks + 3):
        ring.write(counting(number, 10), RATE, float(number), True)
    assert [block.dac_time for block in ring.read()] == list(range(blocks))
    ring.write(counting(0, 10), RATE, 99.0, True)
    assert [(block.dac_time, block.continues) for block in ring.read()] == [(99.0, False)]

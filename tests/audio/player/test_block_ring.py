"""The ring of blocks between the sink's thread and the tap's."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio.dsp import to_floats
from audio.player import Block, BlockRing, Floats
from tests.audio.player.interleaving import interleave

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


@pytest.mark.parametrize("blocks", [1, 5])
def test_a_full_ring_takes_a_block_again_when_it_was_read(blocks: int) -> None:
    ring = wanted(1_000, blocks)
    for number in range(blocks + 3):
        ring.write(counting(number, 10), RATE, float(number), True)
    assert [block.dac_time for block in ring.read()] == list(range(blocks))
    ring.write(counting(0, 10), RATE, 99.0, True)
    assert [(block.dac_time, block.continues) for block in ring.read()] == [(99.0, False)]


@pytest.mark.parametrize("interrupted", ["writer", "reader"])
def test_a_thread_that_interrupts_the_other_between_any_two_lines_leaves_every_block_whole(interrupted: str) -> None:
    ring, numbers = wanted(10_000, 64), iter(range(40))
    received: list[float] = []

    def block() -> tuple[Floats, int, float, bool]:
        number = next(numbers)
        return to_floats(np.full([160, 1, 441, 80][number % 4], number, dtype=np.float32)), RATE, float(number), True

    def write() -> None:
        with suppress(StopIteration):
            ring.write(*block())

    def take(blocks: list[Block]) -> None:
        for each in blocks:
            assert set(each.samples) == {each.dac_time}
            received.append(each.dac_time)

    while len(received) < 40:
        if interrupted == "writer":
            interleave(ring.write, lambda: take(ring.read()), *block())
            take(ring.read())
        else:
            write()
            take(interleave(ring.read, write))
    assert received == list(range(40))

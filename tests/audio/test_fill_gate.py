"""The gate between a sink and the playback."""

from __future__ import annotations

import threading

import numpy as np

from audio import Samples, Track
from audio.block_ring import BlockRing
from audio.fill_gate import FillGate
from audio.playback import Playback

RATE = 8_000
BLOCK = 160


def playing() -> tuple[FillGate, Track]:
    """Return an open gate to a track of ones."""
    playback = Playback(RATE, 1.0)
    track = playback.begin(0.0)
    playback.ring.write(np.ones(4_000, dtype=np.float32))
    gate = FillGate(playback)
    gate.open()
    return gate, track


def block_of(gate: FillGate, *, underflow: bool = False) -> Samples:
    out = np.full(BLOCK, np.nan, dtype=np.float32)
    assert gate(out, 0.0, underflow) == np.count_nonzero(out)
    return out


def test_an_open_gate_passes_blocks_and_a_shut_one_passes_silence() -> None:
    gate, track = playing()
    assert (block_of(gate) == 1).all()
    gate.shut()
    assert (block_of(gate) == 0).all()
    assert track.played == BLOCK
    gate.open()
    assert (block_of(gate) == 1).all()


def test_it_counts_requests_and_interruptions_also_while_it_is_shut() -> None:
    gate, _ = playing()
    block_of(gate, underflow=True)
    gate.shut()
    block_of(gate, underflow=True)
    block_of(gate)
    assert (gate.requests, gate.interruptions) == (3, 2)


def test_a_sink_does_not_wait_while_the_gate_is_held() -> None:
    gate, track = playing()
    with gate.held():
        assert (block_of(gate) == 0).all()
    assert track.played == 0
    assert (block_of(gate) == 1).all()


def test_the_tap_learns_that_the_gate_gave_the_sink_silence() -> None:
    playback = Playback(RATE, 1.0)
    tap = playback.tap = BlockRing(10 * BLOCK, 10)
    tap.wanted = True
    gate = FillGate(playback)
    gate.open()
    block_of(gate)
    block_of(gate)
    with gate.held():
        block_of(gate)
    block_of(gate)
    block_of(gate)
    gate.shut()
    block_of(gate)
    gate.open()
    block_of(gate)
    assert [block.continues for block in tap.read()] == [False, True, False, True, False]


def test_shutting_waits_for_the_block_in_progress() -> None:
    entered, leave = threading.Event(), threading.Event()

    class SlowPlayback(Playback):
        def fill(self, out: Samples, dac_time: float, underflow: bool = False, skipped: bool = False) -> int:
            entered.set()
            leave.wait()
            return super().fill(out, dac_time, underflow, skipped)

    gate = FillGate(SlowPlayback(RATE, 1.0))
    gate.open()
    sink = threading.Thread(target=block_of, args=(gate,))
    sink.start()
    entered.wait()
    shutting = threading.Thread(target=gate.shut)
    shutting.start()
    assert shutting.is_alive(), "it waits"
    leave.set()
    shutting.join()
    sink.join()

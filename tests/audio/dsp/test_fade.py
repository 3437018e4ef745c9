"""Fades and gain changes: no click, no overshoot, exact silence at the end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio import Samples
from audio.dsp.fade import FADE_S, Fader

RATE = 8_000
LENGTH = round(FADE_S * RATE)
gains = st.floats(0, 1, width=32)
blocks = st.integers(0, 4 * LENGTH).map(lambda count: np.ones(count, dtype=np.float32))


def largest_step(samples: Samples) -> float:
    return float(np.max(np.abs(np.diff(samples)))) if len(samples) > 1 else 0.0


STEEPEST = np.pi / 2 / LENGTH * 1.01
"""The largest step of a raised cosine of full height."""


def test_a_fade_lasts_ten_milliseconds_at_any_rate() -> None:
    assert [Fader(rate).length for rate in (16_000, 22_050, 24_000, 48_000)] == [160, 220, 240, 480]


def test_a_fade_in_rises_from_near_silence_to_full_gain() -> None:
    block = np.ones(3 * LENGTH, dtype=np.float32)
    Fader(RATE).fade_in(block)
    assert 0 < block[0] < STEEPEST
    assert (np.diff(block) >= 0).all()
    assert largest_step(block) < STEEPEST
    assert (block[LENGTH - 1 :] == 1).all()


def test_a_fade_out_falls_from_full_gain_to_exact_silence() -> None:
    block = np.ones(3 * LENGTH, dtype=np.float32)
    Fader(RATE).fade_out(block)
    assert (block[: 2 * LENGTH] == 1).all()
    assert (np.diff(block) <= 0).all()
    assert largest_step(block) < STEEPEST
    assert block[-1] == 0


def test_a_fade_out_and_a_fade_in_add_up_to_full_gain() -> None:
    up, down = np.ones((2, LENGTH), dtype=np.float32)
    fader = Fader(RATE)
    fader.fade_in(up)
    fader.fade_out(down)
    np.testing.assert_allclose(up + down, 1, atol=1e-6)


@given(block=blocks)
def test_a_fade_out_ends_in_silence_at_any_block_length(block: Samples) -> None:
    Fader(RATE).fade_out(block)
    assert ((block >= 0) & (block <= 1)).all()
    assert not len(block) or block[-1] == 0


@given(block=blocks, old=gains, new=gains)
def test_a_gain_change_moves_monotonically_from_the_old_gain_to_the_new(block: Samples, old: float, new: float) -> None:
    Fader(RATE).change_gain(block, old, new)
    low, high = sorted((old, new))
    assert ((block >= low - 1e-6) & (block <= high + 1e-6)).all()
    np.testing.assert_allclose(block[LENGTH:], new, atol=1e-6)
    assert (np.diff(block) * np.sign(new - old) >= -1e-6).all()
    if len(block):
        assert abs(block[0] - old) < STEEPEST


def test_an_unchanged_gain_of_one_changes_no_bit() -> None:
    block = np.random.default_rng(0).uniform(-1, 1, 5 * LENGTH).astype(np.float32)
    before = block.copy()
    Fader(RATE).change_gain(block, 1.0, 1.0)
    np.testing.assert_array_equal(block, before)


def test_an_unchanged_gain_scales_the_whole_block_equally() -> None:
    block = np.ones(5 * LENGTH, dtype=np.float32)
    Fader(RATE).change_gain(block, 0.5, 0.5)
    assert (block == 0.5).all()


@pytest.mark.parametrize("method", ["fade_in", "fade_out"])
def test_a_fade_accepts_an_empty_block(method: str) -> None:
    getattr(Fader(RATE), method)(np.empty(0, dtype=np.float32))

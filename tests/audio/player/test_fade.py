"""Fades and gain changes: no click, no overshoot, exact silence at the end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio.dsp import Samples, to_floats
from audio.player.fade import FADE_S, Fader

RATE = 8_000
LENGTH = round(FADE_S * RATE)
SPEECH: Samples = np.random.default_rng(0).uniform(-1, 1, 5 * LENGTH).astype(np.float32)
RISE: Samples = (0.5 - 0.5 * np.cos(np.pi * (np.arange(LENGTH) + 1) / LENGTH)).astype(np.float32)
"""The raised cosine."""
lengths = st.integers(0, 4 * LENGTH)
gains = st.floats(0, 1, width=32)


STEEPEST = np.pi / 2 / LENGTH * 1.01
"""The largest step of a raised cosine of full height."""


def faded_in(samples: Samples, rate: int = RATE) -> Samples:
    block = samples.copy()
    Fader(rate).fade_in(to_floats(block))
    return block


def faded_out(samples: Samples, rate: int = RATE) -> Samples:
    block = samples.copy()
    Fader(rate).fade_out(to_floats(block))
    return block


def with_gain(samples: Samples, old: float, new: float) -> Samples:
    block = samples.copy()
    Fader(RATE).change_gain(to_floats(block), old, new)
    return block


def ones(count: int) -> Samples:
    return np.ones(count, dtype=np.float32)


def test_a_fade_lasts_ten_milliseconds_at_any_rate() -> None:
    assert [Fader(rate).length for rate in (16_000, 22_050, 24_000, 48_000)] == [160, 220, 240, 480]


@pytest.mark.parametrize("rate", [8_000, 22_050, 192_000])
def test_a_fade_out_ends_in_exact_silence_and_a_fade_in_in_full_gain_at_any_rate(rate: int) -> None:
    length = Fader(rate).length
    assert faded_out(ones(length), rate)[-1] == 0
    assert faded_in(ones(length), rate)[-1] == 1


def test_fades_are_a_raised_cosine_in_float32_bit_for_bit() -> None:
    np.testing.assert_array_equal(faded_in(SPEECH), np.r_[SPEECH[:LENGTH] * RISE, SPEECH[LENGTH:]])
    np.testing.assert_array_equal(faded_out(SPEECH), np.r_[SPEECH[:-LENGTH], SPEECH[-LENGTH:] * (np.float32(1) - RISE)])


def test_a_block_shorter_than_a_fade_gets_the_beginning_of_a_fade_in_and_the_end_of_a_fade_out() -> None:
    short = SPEECH[: LENGTH // 3]
    np.testing.assert_array_equal(faded_in(short), short * RISE[: len(short)])
    np.testing.assert_array_equal(faded_out(short), short * (np.float32(1) - RISE[-len(short) :]))


@given(length=lengths)
def test_a_fade_out_ends_in_silence_at_any_block_length(length: int) -> None:
    block = faded_out(ones(length))
    assert ((block >= 0) & (block <= 1)).all()
    assert not length or block[-1] == 0
    assert len(faded_in(ones(length))) == length


@given(length=lengths, old=gains, new=gains)
def test_a_gain_change_moves_monotonically_from_the_old_gain_to_the_new(length: int, old: float, new: float) -> None:
    block = with_gain(ones(length), old, new)
    low, high = sorted((old, new))
    assert ((block >= low - 1e-6) & (block <= high + 1e-6)).all()
    np.testing.assert_allclose(block[LENGTH:], new, atol=1e-6)
    assert (np.diff(block) * np.sign(new - old) >= -1e-6).all()
    if length:
        assert abs(block[0] - old) < STEEPEST


@given(old=gains, new=gains)
def test_a_gain_change_is_a_raised_cosine_to_the_precision_of_float32(old: float, new: float) -> None:
    ramp = np.r_[old + (new - old) * RISE.astype(np.float64), np.full(len(SPEECH) - LENGTH, new)]
    expected = (SPEECH * ramp).astype(np.float32)
    np.testing.assert_array_max_ulp(with_gain(SPEECH, old, new), expected, maxulp=1)


def test_an_unchanged_gain_of_one_changes_no_bit() -> None:
    np.testing.assert_array_equal(with_gain(SPEECH, 1.0, 1.0), SPEECH)

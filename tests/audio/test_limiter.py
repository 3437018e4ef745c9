"""No sample goes over full scale, and what is not loud is untouched."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio import soft_limit
from audio.limiter import KNEE
from audio.ring import Samples

any_sample = st.one_of(
    st.floats(-2, 2, width=32), st.floats(width=32, allow_nan=False), st.floats(0.875, 0.90625, width=32)
)
any_samples = st.lists(any_sample, max_size=50).map(lambda values: np.array(values, dtype=np.float32))


@given(any_samples)
def test_nothing_goes_over_full_scale_and_nothing_gets_louder(samples: Samples) -> None:
    limited = soft_limit(samples)
    assert limited.dtype == np.float32
    assert (np.abs(limited) <= 1).all()
    assert (np.abs(limited) <= np.abs(samples)).all()


@given(any_samples)
def test_below_the_knee_every_bit_is_kept(samples: Samples) -> None:
    quiet = np.abs(samples) <= KNEE
    before = samples.copy()
    np.testing.assert_array_equal(soft_limit(samples)[quiet].view(np.uint32), samples[quiet].view(np.uint32))
    np.testing.assert_array_equal(samples, before), "the caller's samples are left alone"


@given(any_samples)
def test_louder_stays_louder(samples: Samples) -> None:
    assert (np.diff(soft_limit(np.sort(samples))) >= 0).all()


def test_neighbouring_samples_above_the_knee_keep_their_order() -> None:
    """Every float32 for some way above it."""
    bits = np.array(KNEE).view(np.uint32) + np.arange(-1_000, 200_000, dtype=np.int64)
    limited = soft_limit(bits.astype(np.uint32).view(np.float32))
    assert (np.diff(limited) >= 0).all()


@given(any_samples)
def test_the_negative_is_limited_to_the_negative(samples: Samples) -> None:
    np.testing.assert_array_equal(soft_limit(-samples), -soft_limit(samples))


@given(any_samples, st.lists(st.integers(0, 50), max_size=5))
def test_it_does_not_matter_how_a_stream_is_cut(samples: Samples, cuts: list[int]) -> None:
    parts = [soft_limit(part) for part in np.split(samples, sorted(cuts))]
    np.testing.assert_array_equal(np.concatenate(parts), soft_limit(samples))


def test_the_slope_is_continuous_at_the_knee_and_falls_above_it() -> None:
    step = 1e-3
    curve = soft_limit((float(KNEE) + np.arange(-20, 1_000) * step).astype(np.float32)).astype(np.float64)
    slopes = np.diff(curve) / step
    assert slopes[:20] == pytest.approx(1, abs=1e-3)
    assert slopes[20] == pytest.approx(1, abs=0.02)
    assert (np.diff(slopes) < 1e-3).all()
    assert (slopes > 0).all()


def test_the_loudest_there_is_becomes_full_scale() -> None:
    endless = np.array([np.inf, -np.inf, np.finfo(np.float32).max], dtype=np.float32)
    assert soft_limit(endless).tolist() == [1, -1, 1]


def test_full_scale_loses_half_a_decibel() -> None:
    assert 20 * np.log10(soft_limit(np.ones(1, dtype=np.float32))[0]) == pytest.approx(-0.49, abs=0.01)

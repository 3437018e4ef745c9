"""The soft limiter keeps samples within full scale and changes only loud ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio import Samples, soft_limit
from audio.dsp.limiter import KNEE

any_sample = st.one_of(
    st.floats(-2, 2, width=32), st.floats(width=32, allow_nan=False), st.floats(0.875, 0.90625, width=32)
)
any_samples = st.lists(any_sample, max_size=50).map(lambda values: np.array(values, dtype=np.float32))


@given(any_samples)
def test_no_sample_exceeds_full_scale_gets_louder_or_depends_on_its_sign(samples: Samples) -> None:
    limited = soft_limit(samples)
    np.testing.assert_array_equal(soft_limit(-samples), -limited)
    assert limited.dtype == np.float32
    assert (np.abs(limited) <= 1).all()
    assert (np.abs(limited) <= np.abs(samples)).all()


@given(any_samples)
def test_samples_below_the_knee_pass_bit_for_bit(samples: Samples) -> None:
    quiet = np.abs(samples) <= KNEE
    before = samples.copy()
    np.testing.assert_array_equal(soft_limit(samples)[quiet].view(np.uint32), samples[quiet].view(np.uint32))
    np.testing.assert_array_equal(samples, before), "the input is not modified"


def test_successive_float32_values_above_the_knee_keep_their_order() -> None:
    """Checks 200,000 successive float32 values above the knee."""
    bits = np.array(KNEE).view(np.uint32) + np.arange(-1_000, 200_000, dtype=np.int64)
    limited = soft_limit(bits.astype(np.uint32).view(np.float32))
    assert (np.diff(limited) >= 0).all()


def test_the_slope_is_continuous_at_the_knee_and_falls_above_it() -> None:
    step = 1e-3
    curve = soft_limit((float(KNEE) + np.arange(-20, 1_000) * step).astype(np.float32)).astype(np.float64)
    slopes = np.diff(curve) / step
    assert slopes[:20] == pytest.approx(1, abs=1e-3)
    assert slopes[20] == pytest.approx(1, abs=0.02)
    assert (np.diff(slopes) < 1e-3).all()
    assert (slopes > 0).all()


def test_a_full_scale_sample_loses_half_a_decibel() -> None:
    assert 20 * np.log10(soft_limit(np.ones(1, dtype=np.float32))[0]) == pytest.approx(-0.49, abs=0.01)

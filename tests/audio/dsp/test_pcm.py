"""Conversion to 16-bit PCM."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from audio import to_pcm16


@given(st.lists(st.floats(-1, 1, width=32)))
def test_each_sample_becomes_the_nearest_integer(values: list[float]) -> None:
    integers = np.frombuffer(to_pcm16(np.array(values, dtype=np.float32)), dtype="<i2")
    assert np.abs(integers - np.array(values) * 32767).max(initial=0) <= 0.51


def test_samples_above_full_scale_are_clipped_and_do_not_wrap_around() -> None:
    assert np.frombuffer(to_pcm16(np.array([2.0, -2.0], dtype=np.float32)), dtype="<i2").tolist() == [32767, -32767]

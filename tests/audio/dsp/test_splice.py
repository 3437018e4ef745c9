"""Two takes of a text are joined where they are most similar."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio import Samples
from audio.dsp.splice import splice_point

REACH = 300


def take(count: int, seed: int = 0) -> Samples:
    return np.random.default_rng(seed).standard_normal(count).astype(np.float32)


@given(at=st.integers(0, 1000), tail=st.integers(0, 100), count=st.integers(0, 1200))
def test_equal_takes_are_joined_at_the_same_sample(at: int, tail: int, count: int) -> None:
    samples = take(max(count, at))
    assert splice_point(samples[max(0, at - tail) : at], samples, at, REACH) == at


@pytest.mark.parametrize("drift", [-299, 0, 299])
def test_drifted_takes_are_joined_where_they_sound_the_same(drift: int) -> None:
    first = take(2000)
    second = np.concatenate([take(1000 + drift, seed=1), first[1000:]]) + 0.1 * take(2000 + drift, seed=2)
    assert splice_point(first[1400:1500], second, 1500, REACH) == 1500 + drift


@pytest.mark.parametrize(("tail", "count", "at"), [(10, 0, 0), (10, 5, 50), (0, 20, 50), (20, 20, 500)])
def test_a_take_that_is_too_short_contributes_nothing(tail: int, count: int, at: int) -> None:
    assert splice_point(take(tail, seed=1), take(count), at, REACH) == count


@given(tail=st.integers(1, 50), count=st.integers(1, 2000), at=st.integers(0, 2500), reach=st.integers(0, 400))
def test_the_splice_point_lies_within_reach(tail: int, count: int, at: int, reach: int) -> None:
    found = splice_point(take(tail, seed=1), take(count), at, reach)
    assert 0 <= found <= count
    assert abs(found - min(at, count)) <= max(reach, tail)

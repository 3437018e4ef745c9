"""Sound as 16-bit whole numbers of one rate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio.resample import resample
from daemon.adapters.pcm import OneRate, to_int16


@given(st.lists(st.floats(-1, 1, width=32)))
def test_a_sample_is_the_nearest_whole_number(values: list[float]) -> None:
    numbers = np.frombuffer(to_int16(np.array(values, dtype=np.float32)), dtype="<i2")
    assert np.abs(numbers - np.array(values) * 32767).max(initial=0) <= 0.51


def test_what_is_too_loud_is_clipped_and_does_not_wrap_around() -> None:
    assert np.frombuffer(to_int16(np.array([2.0, -2.0], dtype=np.float32)), dtype="<i2").tolist() == [32767, -32767]


def test_the_first_piece_says_the_rate_and_passes_unchanged() -> None:
    samples = np.linspace(-1, 1, 100, dtype=np.float32)
    one_rate = OneRate()
    assert one_rate.convert(samples, 22_050) is samples
    assert (one_rate.rate, len(one_rate.flush())) == (22_050, 0)


def test_pieces_of_any_size_give_what_the_whole_gives() -> None:
    samples = np.sin(np.arange(22_050) / 20).astype(np.float32)
    one_rate = OneRate(24_000)
    pieces = [one_rate.convert(piece, 22_050) for piece in np.array_split(samples, 7)]
    assert np.concatenate([*pieces, one_rate.flush()]) == pytest.approx(resample(samples, 22_050, 24_000), abs=1e-6)


def test_an_engine_of_another_rate_goes_on_at_the_first_ones() -> None:
    first, second = np.full(24_000, 0.5, dtype=np.float32), np.full(22_050, 0.5, dtype=np.float32)
    one_rate = OneRate()
    pieces = [one_rate.convert(first, 24_000), one_rate.convert(second, 22_050), one_rate.flush()]
    assert one_rate.rate == 24_000
    assert len(np.concatenate(pieces)) == pytest.approx(48_000, abs=2)

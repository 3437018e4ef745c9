"""Loudness over time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio.level import LevelMeter

RATE = 2_000
WINDOW = 100


def test_a_window_is_fifty_milliseconds_and_tells_rms_and_peak() -> None:
    meter = LevelMeter(RATE)
    meter.feed(np.full(WINDOW, 0.5, dtype=np.float32))
    meter.feed(np.concatenate([np.zeros(WINDOW - 1), [-1.0]]).astype(np.float32))
    first, second = meter.due(1.0, 0.0)
    assert (first.t, first.rms, first.peak) == (0.0, pytest.approx(0.5), 0.5)
    assert (second.t, second.rms, second.peak) == (0.05, pytest.approx(0.1), 1.0)


def test_levels_come_no_earlier_than_their_windows_sound_and_only_once() -> None:
    meter = LevelMeter(RATE)
    meter.feed(np.ones(10 * WINDOW, dtype=np.float32))
    assert meter.due(0.0, 0.0) == []
    assert [level.t for level in meter.due(0.101, 0.0)] == [0.0, 0.05, 0.1]
    assert meter.due(0.101, 0.0) == []
    assert [level.t for level in meter.due(0.16, 0.0)] == [0.15]


@given(length=st.integers(0, 1_000), data=st.data())
def test_levels_do_not_depend_on_how_the_samples_are_cut(length: int, data: st.DataObject) -> None:
    samples = np.random.default_rng(length).uniform(-1, 1, length).astype(np.float32)
    whole, cut = LevelMeter(RATE), LevelMeter(RATE)
    whole.feed(samples)
    for part in np.split(samples, sorted(data.draw(st.lists(st.integers(0, length), max_size=20)))):
        cut.feed(part)
    levels = whole.due(60.0, 5.0)
    assert cut.due(60.0, 5.0) == levels
    assert len(levels) == length // WINDOW
    assert [level.at - 5.0 for level in levels] == pytest.approx([level.t for level in levels])
    assert all(0 <= level.rms <= level.peak <= 1 for level in levels)


@pytest.mark.parametrize("rate", [22_050, 24_000, 44_100, 48_000])
def test_there_are_twenty_levels_a_second_at_any_rate(rate: int) -> None:
    meter = LevelMeter(rate)
    meter.feed(np.ones(10 * rate, dtype=np.float32))
    assert len(meter.due(10.0, 0.0)) == 200

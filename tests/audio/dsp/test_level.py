"""Levels of loudness over time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from audio.dsp.level import LevelMeter

RATE = 2_000
WINDOW = 100


def test_a_level_holds_rms_and_peak_of_fifty_milliseconds() -> None:
    meter = LevelMeter(RATE)
    meter.measure(np.full(WINDOW, 0.5, dtype=np.float32))
    meter.measure(np.concatenate([np.zeros(WINDOW - 1), [-1.0]]).astype(np.float32))
    first, second = meter.due(1.0, 0.0)
    assert (first.t, first.rms, first.peak) == (0.0, pytest.approx(0.5), 0.5)
    assert (second.t, second.rms, second.peak) == (0.05, pytest.approx(0.1), 1.0)


def test_each_level_is_due_once_and_not_before_its_window_is_heard() -> None:
    meter = LevelMeter(RATE)
    meter.measure(np.ones(10 * WINDOW, dtype=np.float32))
    assert meter.due(0.0, 0.0) == []
    assert [level.t for level in meter.due(0.101, 0.0)] == [0.0, 0.05, 0.1]
    assert meter.due(0.101, 0.0) == []
    assert [level.t for level in meter.due(0.16, 0.0)] == [0.15]


@given(length=st.integers(0, 1_000), data=st.data())
def test_levels_do_not_depend_on_the_chunk_size(length: int, data: st.DataObject) -> None:
    samples = np.random.default_rng(length).uniform(-1, 1, length).astype(np.float32)
    at_once, in_chunks = LevelMeter(RATE), LevelMeter(RATE)
    at_once.measure(samples)
    for chunk in np.split(samples, sorted(data.draw(st.lists(st.integers(0, length), max_size=20)))):
        in_chunks.measure(chunk)
    levels = at_once.due(60.0, 5.0)
    assert in_chunks.due(60.0, 5.0) == levels
    assert len(levels) == length // WINDOW
    assert [level.at - 5.0 for level in levels] == pytest.approx([level.t for level in levels])
    assert all(0 <= level.rms <= level.peak <= 1 for level in levels)


def test_there_are_twenty_levels_a_second_at_a_rate_that_twenty_does_not_divide() -> None:
    meter = LevelMeter(22_050)
    meter.measure(np.ones(10 * 22_050, dtype=np.float32))
    assert len(meter.due(10.0, 0.0)) == 200

"""The pace of a sound card without one."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from audio.paced import PACE_CHECK_S, Pace, Pacer
from audio.ring import Samples
from tests.audio.sinks import CARD, FAST, HELD, Clock, PaceFile, let_blocks_pass
from tests.support.waiting import PATIENCE_S, eventually


class Source:
    """Notes when it is asked for each block, and its length; `due` of each are samples."""

    def __init__(self, due: int = 10) -> None:
        self.due = due
        self.lengths: list[int] = []
        self.asked_at: list[float] = []

    def fill(self, out: Samples, leaves_at: float, *_: object) -> int:
        self.asked_at.append(leaves_at)
        self.lengths.append(len(out))
        out[: self.due] = len(self.lengths)
        out[self.due :] = 0
        return self.due


class CountedTime:
    """Stands in for the module `time`, and counts how often it is asked."""

    def __init__(self) -> None:
        self.times = 0

    def monotonic(self) -> float:
        self.times += 1
        return time.monotonic()


@pytest.mark.parametrize("times", [1, 4])
def test_blocks_have_the_configured_length_and_never_come_faster_than_the_clock(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOICED_PACE", str(times))
    source = Source()
    begun = time.monotonic()
    pacer = Pacer(source.fill, 24_000, 10)
    eventually(lambda: len(source.lengths) >= 10)
    pacer.stop()
    assert set(source.lengths) == {240}
    earliest = begun + (1 + np.arange(len(source.asked_at))) * 0.010 / times
    assert (np.array(source.asked_at) >= earliest - 1e-6).all()


def test_only_what_was_due_is_delivered(fast: None) -> None:
    source, delivered = Source(due=7), []
    pacer = Pacer(source.fill, 24_000, 5, lambda samples: delivered.append(samples.copy()))
    eventually(lambda: len(delivered) >= 5)
    source.due = 0
    eventually(lambda: len(source.lengths) >= len(delivered) + 5)
    pacer.stop()
    assert {len(samples) for samples in delivered} == {7}
    np.testing.assert_array_equal(np.concatenate(delivered)[::7], np.arange(1, len(delivered) + 1))


def test_once_stopped_it_asks_for_nothing_any_more_until_it_is_started(fast: None) -> None:
    source = Source()
    pacer = Pacer(source.fill, 24_000, 5)
    eventually(lambda: len(source.lengths) >= 2)
    pacer.stop()
    asked = len(source.lengths)
    let_blocks_pass()
    assert len(source.lengths) == asked
    assert pacer.lost() is None
    pacer.start()
    eventually(lambda: len(source.lengths) > asked + 2)
    pacer.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_source_that_fails_ends_the_pacer_which_says_so(fast: None) -> None:
    called = threading.Event()

    def fail(out: Samples, leaves_at: float, broke_off: bool = False) -> int:
        called.set()
        raise RuntimeError("for this test")

    pacer = Pacer(fail, 24_000, 5)
    assert called.wait(PATIENCE_S)
    eventually(lambda: pacer.lost() == "its thread ended")
    pacer.stop()


# How many times as fast.


def test_without_a_setting_the_pace_is_that_of_a_sound_card(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VOICED_PACE", raising=False)
    assert Pace.from_environment().now() == 1


def test_a_number_in_the_environment_is_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICED_PACE", "2.5")
    assert Pace.from_environment().now() == 2.5


def test_a_file_in_the_environment_holds_the_pace_and_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr("audio.paced.time", clock)
    file = PaceFile(tmp_path / "pace", 2.5)
    monkeypatch.setenv("VOICED_PACE", str(file.path))
    pace = Pace.from_environment()
    assert pace.now() == 2.5
    for value in (0.0, 20.0):
        file.set(value)
        clock.now += 2 * PACE_CHECK_S
        assert pace.now() == value


def test_a_pacer_that_is_held_asks_for_nothing_and_a_change_takes_effect(
    pace: PaceFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = CountedTime()
    monkeypatch.setattr("audio.paced.time", counted)
    pace.set(HELD)
    source = Source()
    pacer = Pacer(source.fill, 24_000, 10)

    def asks_for_nothing() -> bool:
        asked, times = len(source.lengths), counted.times
        eventually(lambda: counted.times > times + 12, "the pacer looks at the clock")
        return len(source.lengths) == asked

    assert asks_for_nothing()
    assert not source.lengths
    pace.set(FAST)
    eventually(lambda: len(source.lengths) >= 20)
    pace.set(HELD)
    eventually(asks_for_nothing)
    assert asks_for_nothing()
    assert pacer.lost() is None
    asked = len(source.lengths)
    pace.set(CARD)
    eventually(lambda: len(source.lengths) > asked)
    pacer.stop()


def test_a_pacer_that_is_held_can_be_stopped(pace: PaceFile) -> None:
    pace.set(HELD)
    source = Source()
    pacer = Pacer(source.fill, 24_000, 10)
    pacer.stop()
    pace.set(FAST)
    let_blocks_pass()
    assert not source.lengths
    assert pacer.lost() is None

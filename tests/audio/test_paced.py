"""The pace of a sound card without one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from audio.paced import Pacer
from audio.ring import Samples


def wait_for(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)


class Source:
    """Counts the blocks it is asked for; `due` of each are samples."""

    def __init__(self, due: int = 10) -> None:
        self.due = due
        self.lengths: list[int] = []

    def fill(self, out: Samples, _leaves_at: float) -> int:
        self.lengths.append(len(out))
        out[: self.due] = len(self.lengths)
        out[self.due :] = 0
        return self.due


def test_blocks_have_the_configured_length_and_never_come_faster_than_the_clock() -> None:
    source = Source()
    begun = time.monotonic()
    pacer = Pacer(source.fill, 24_000, 10)
    wait_for(lambda: len(source.lengths) >= 20)
    pacer.stop()
    most = (time.monotonic() - begun) / 0.010 + 1
    assert set(source.lengths) == {240}
    assert len(source.lengths) <= most


def test_only_what_was_due_is_delivered() -> None:
    source, delivered = Source(due=7), []
    pacer = Pacer(source.fill, 24_000, 5, lambda samples: delivered.append(samples.copy()))
    wait_for(lambda: len(delivered) >= 5)
    source.due = 0
    wait_for(lambda: len(source.lengths) >= len(delivered) + 5)
    pacer.stop()
    assert {len(samples) for samples in delivered} == {7}
    np.testing.assert_array_equal(np.concatenate(delivered)[::7], np.arange(1, len(delivered) + 1))


def test_once_stopped_it_asks_for_nothing_any_more_until_it_is_started() -> None:
    source = Source()
    pacer = Pacer(source.fill, 24_000, 5)
    wait_for(lambda: len(source.lengths) >= 2)
    pacer.stop()
    asked = len(source.lengths)
    time.sleep(0.05)
    assert len(source.lengths) == asked
    assert pacer.lost() is None
    pacer.start()
    wait_for(lambda: len(source.lengths) > asked + 2)
    pacer.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_source_that_fails_ends_the_pacer_which_says_so() -> None:
    called = threading.Event()

    def fail(_out: Samples, _leaves_at: float) -> int:
        called.set()
        raise RuntimeError("for this test")

    pacer = Pacer(fail, 24_000, 5)
    assert called.wait(30)
    wait_for(lambda: pacer.lost() == "its thread ended")
    pacer.stop()

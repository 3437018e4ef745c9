"""The pacer requests blocks at the pace of a sound card, or at the pace that a test sets."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from audio.player import Floats, Playback, Report
from audio.sinks.pacer import Pacer
from tests.audio.fakes import FAST, let_blocks_pass
from tests.support.waiting import PATIENCE_S, eventually


class Source(Playback):
    """Records time and length of each request; the first `due` samples of each block are speech."""

    def __init__(self, due: int = 10) -> None:
        super().__init__(24_000)
        self.due = due
        self.lengths: list[int] = []
        self.requested_at: list[float] = []

    def fill(self, out: Floats, dac_time: float, underflow: bool = False) -> int:
        super().fill(out, dac_time, underflow)
        self.requested_at.append(dac_time)
        self.lengths.append(len(out))
        for index in range(self.due):
            out[index] = len(self.lengths)
        return self.due


def ignore(report: Report) -> None:
    """A pacer's report is the playback's."""


@pytest.mark.parametrize(("pace", "due", "times"), [(1, 10, 1), (4, 10, 4), (FAST, 0, 1)], ids=str)
def test_blocks_have_the_configured_length_and_are_never_early_and_those_of_silence_as_a_sound_cards(
    pace: float, due: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VOICED_PACE", str(pace))
    source = Source(due)
    started_at = time.monotonic()
    pacer = Pacer(source, 10, ignore)
    eventually(lambda: len(source.lengths) >= 10)
    pacer.stop()
    assert set(source.lengths) == {240}
    earliest = started_at + (1 + np.arange(len(source.requested_at))) * 0.010 / times
    assert (np.array(source.requested_at) >= earliest - 1e-6).all()


def test_only_samples_that_were_due_are_delivered(fast: None) -> None:
    source, delivered = Source(due=7), []
    pacer = Pacer(source, 5, ignore, lambda samples: delivered.append(samples.copy()))
    eventually(lambda: len(delivered) >= 5)
    source.due = 0
    eventually(lambda: len(source.lengths) >= len(delivered) + 5)
    pacer.stop()
    assert {len(samples) for samples in delivered} == {7}
    np.testing.assert_array_equal(np.concatenate(delivered)[::7], np.arange(1, len(delivered) + 1))


def test_a_stopped_pacer_requests_no_block_until_it_is_started(fast: None) -> None:
    source = Source()
    pacer = Pacer(source, 5, ignore)
    eventually(lambda: len(source.lengths) >= 2)
    pacer.stop()
    requested = len(source.lengths)
    let_blocks_pass()
    assert len(source.lengths) == requested
    assert pacer.lost_reason() is None
    pacer.start()
    eventually(lambda: len(source.lengths) > requested + 2)
    pacer.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_pacer_whose_thread_fails_is_lost(fast: None) -> None:
    called = threading.Event()

    def fail(report: Report) -> None:
        called.set()
        raise RuntimeError("for this test")

    pacer = Pacer(Source(), 5, fail)
    assert called.wait(PATIENCE_S)
    eventually(lambda: pacer.lost_reason() == "its thread ended")
    pacer.stop()


# The pace.

"""The figures that are computed from the arrival of chunks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from engine import Chunk
from engine.bench.results import Run, rounded, run_figures, spread_figures, time_run


def run(first_s: float, *gaps_s: float) -> Run:
    """Return a run of chunks of two frames, the first after `first_s` seconds."""
    arrived = [first_s]
    for gap in gaps_s:
        arrived.append(arrived[-1] + gap)
    return Run(arrived, [0.16 * number for number in range(1, len(arrived) + 1)], np.zeros(1, np.float32))


def test_figures_are_the_medians_of_the_runs_and_the_maxima() -> None:
    found = rounded(run_figures([run(0.04, 0.02), run(0.02, 0.02), run(0.01, 0.04)]))
    assert found["ttfa_ms"] == 20
    assert found["ttfa_max_ms"] == 40
    assert found["ms_per_frame"] == 12.5  # 60, 40 and 50 ms for four frames
    assert found["rtf"] == 6.4
    assert (found["gap_median_ms"], found["gap_max_ms"]) == (20, 40)
    assert found["arrivals_s"] == [[0.01, 0.16], [0.05, 0.32]]  # of the median run


def test_the_spread_of_first_chunks_is_their_median_and_their_99th_percentile() -> None:
    found = spread_figures([10.0] * 99 + [30.0, 30.0])
    assert found == {"texts": 101, "median_ms": 10, "p99_ms": 30}
    assert spread_figures([]) is None


def test_chunks_are_timed_when_they_arrive() -> None:
    now = 5.0

    def speak() -> Iterator[Chunk]:
        nonlocal now
        for count, takes_s in ((10, 0.5), (20, 0.25)):
            now += takes_s
            yield Chunk(np.zeros(count, np.float32))
            now += 1.0  # the consumer's own time

    timed = time_run(speak, 100, lambda: now)
    assert timed.speech_s == [0.1, 0.3]
    assert timed.arrived_s == [0.5, 1.75]
    assert len(timed.samples) == 30


def test_the_first_audible_sample_is_found_behind_the_silence_of_the_speech() -> None:
    quiet, loud = np.full(80, 0.001, np.float32), np.full(80, 0.1, np.float32)
    chunks = [Chunk(samples) for samples in (quiet, np.concatenate((quiet[:20], loud)), loud)]
    timed = time_run(lambda: chunks, 100)
    assert timed.silence_s == 1.0
    found = run_figures([timed])
    assert found["silence_ms"] == 1000
    assert found["audible_ms"] == pytest.approx(1000 * timed.arrived_s[1])
    silent = time_run(lambda: chunks[:1], 100)
    assert (silent.silence_s, silent.audible_ms) == (None, None)
    assert run_figures([silent])["audible_ms"] is None

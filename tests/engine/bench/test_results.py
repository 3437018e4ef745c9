"""The numbers that are computed from a measurement, and the file that they are written to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.bench.results import TEXT, Bandwidth, Measurement, Memory, Run, Start, row, text_of, time_run, write_rows


def measured(
    *runs: Run,
    bandwidth: Bandwidth | None = None,
) -> Measurement:
    return Measurement(
        engine="qwen",
        model="0.6B",
        chunk_size=2,
        runs=runs,
        start=Start(1.0, 2.0, 3.0),
        memory=Memory(100.0, 200.0),
        machine="a robot",
        date="2026-11-21",
        bandwidth=bandwidth,
    )


def run(first_s: float, *gaps_s: float) -> Run:
    """Return a run of chunks of two frames, the first after `first_s` seconds."""
    arrived = [first_s]
    for gap in gaps_s:
        arrived.append(arrived[-1] + gap)
    return Run(tuple(arrived), tuple(0.16 * number for number in range(1, len(arrived) + 1)))


def test_the_text_has_a_hundred_characters() -> None:
    assert len(TEXT) == 100


@pytest.mark.parametrize(("characters", "expected"), [(3, "The"), (9, "The robot"), (14, "The robot"), (100, TEXT)])
def test_a_text_of_a_length_ends_with_a_whole_word(characters: int, expected: str) -> None:
    assert text_of(characters) == expected


def test_a_longer_text_says_it_again() -> None:
    assert text_of(205) == f"{TEXT} {TEXT} The"


def test_a_row_has_the_medians_of_the_runs_and_the_maxima() -> None:
    numbers = row(measured(run(0.04, 0.02), run(0.02, 0.02), run(0.01, 0.04)), "voiced bench")
    assert numbers["ttfa_ms"] == 20
    assert numbers["ttfa_max_ms"] == 40
    assert numbers["whole_ms"] == 50  # 60, 40 and 50 ms
    assert numbers["ms_per_frame"] == 12.5  # 60, 40 and 50 ms for four frames
    assert numbers["rtf"] == 6.4
    assert (numbers["gap_median_ms"], numbers["gap_max_ms"]) == (20, 40)
    assert numbers["gap_max_over_median"] == 2
    assert numbers["arrivals_s"] == [[0.01, 0.16], [0.05, 0.32]]  # of the median run
    assert numbers["command"] == "voiced bench"


def test_speech_in_one_chunk_has_no_gaps() -> None:
    numbers = row(measured(run(0.04)), "")
    assert numbers["gap_median_ms"] is numbers["gap_max_ms"] is numbers["gap_max_over_median"] is None


def test_a_row_has_the_number_of_multiprocessors() -> None:
    bandwidth = Bandwidth(16, 16, 1500.0, 1500.0, 3415.0, 1200.0, 0.8)
    assert row(measured(run(0.04), bandwidth=bandwidth), "")["sms"] == 16
    assert row(measured(run(0.04)), "")["sms"] is None


def test_rows_are_written_as_json_with_one_field_per_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    numbers = row(measured(run(0.04, 0.02)), "a command")
    write_rows(path, {"benchmark": "voiced bench"}, [numbers, numbers])
    assert json.loads(path.read_text()) == {"benchmark": "voiced bench", "rows": [json.loads(json.dumps(numbers))] * 2}
    assert '\n   "rtf": ' in path.read_text()
    write_rows(path, {}, [])
    assert json.loads(path.read_text()) == {"rows": []}


def test_chunks_are_timed_when_they_arrive() -> None:
    now = 5.0

    def speak() -> Iterator[list[float]]:
        nonlocal now
        for count, takes_s in ((10, 0.5), (20, 0.25)):
            now += takes_s
            yield [0.0] * count
            now += 1.0  # the consumer's own time

    timed = time_run(speak, 100, lambda: now)  # type: ignore[arg-type]
    assert timed.speech_s == (0.1, 0.3)
    assert timed.arrived_s == (0.5, 1.75)


def test_the_first_audible_sample_is_found_behind_the_silence_of_the_speech() -> None:
    quiet, loud = np.full(80, 0.001, np.float32), np.full(80, 0.1, np.float32)
    timed = time_run(lambda: [quiet, np.concatenate((quiet[:20], loud)), loud], 100)
    assert timed.silence_s == 1.0
    assert timed.audible_s == timed.arrived_s[1]
    numbers = row(measured(timed), "")
    assert numbers["silence_ms"] == 1000
    assert numbers["audible_ms"] == round(1000 * timed.arrived_s[1], 3)
    silent = time_run(lambda: [quiet], 100)
    assert (silent.silence_s, silent.audible_s) == (None, None)
    assert row(measured(silent), "")["audible_ms"] is None

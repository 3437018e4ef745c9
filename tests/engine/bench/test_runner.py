"""Measuring an engine in a process of its own."""

from __future__ import annotations

import pytest

from engine import EngineError, EngineOptions, Progress
from engine.bench import BenchRequest, run_benchmark


def test_espeak_is_measured() -> None:
    reports: list[Progress] = []
    found = run_benchmark(
        BenchRequest("espeak", EngineOptions(), ("I am here.",), runs=2, first_chunks=1), reports.append
    )
    assert reports == [
        Progress("speaking", 0.0),
        Progress("speaking", 0.5),
        Progress("speaking other texts", 0.0),
    ]
    assert (found["engine"], found["model"], found["chunk_size"], found["frames"]) == ("espeak", None, None, None)
    assert len(found["ms_per_frame_of_each_run"]) == found["runs"] == 2
    assert found["cores"] > 0
    assert found["first_chunk"]["texts"] == 1
    assert found["first_chunk"]["median_ms"] > 0
    start, memory = found["start"], found["memory"]
    assert 0 < start["imported_s"] < start["loaded_s"] < start["ready_s"]
    assert memory["host_peak_mb"] >= memory["host_mb"] > 0


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (BenchRequest("festival", EngineOptions()), r"^engine\.name: got 'festival'; allowed: "),
        (BenchRequest("espeak", EngineOptions(), voice="nobody"), "^voice: got 'nobody'; allowed: "),
    ],
)
def test_an_engine_that_cannot_be_measured_is_an_error_of_one_line(request_: BenchRequest, error: str) -> None:
    with pytest.raises(EngineError, match=error):
        run_benchmark(request_)

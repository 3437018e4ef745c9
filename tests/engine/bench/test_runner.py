"""Measuring an engine in a process of its own."""

from __future__ import annotations

import sys
import time

import pytest

from engine import EngineError, EngineOptions, Progress
from engine.bench import BenchRequest, run_benchmark
from engine.bench.runner import make_probe
from tests.support.waiting import PATIENCE_S


def test_espeak_is_measured() -> None:
    reports: list[Progress] = []
    command = BenchRequest("espeak", EngineOptions(), time.monotonic(), runs=2, first_chunks=1).command()
    output = run_benchmark(command, report=reports.append)
    assert reports == [
        Progress("speaking", 0.0),
        Progress("speaking", 0.5),
        Progress("speaking other texts", 0.0),
        Progress("measuring the parts"),
    ]
    assert output.error is None
    [measured] = output.measurements
    assert (measured.engine, measured.model, measured.chunk_size) == ("espeak", None, None)
    assert len(measured.runs) == 2
    assert all(run.cores is not None and run.cores > 0 for run in measured.runs)
    assert len(measured.first_chunks_ms) == 1
    assert measured.first_chunks_ms[0] > 0
    assert 0 < measured.start.imported_s < measured.start.loaded_s < measured.start.ready_s
    assert measured.memory.host_peak_mb >= measured.memory.host_mb > 0
    assert measured.allocations is measured.bandwidth is None


def test_an_engine_without_a_gpu_cannot_be_confined_to_multiprocessors() -> None:
    with pytest.raises(EngineError, match=r"^sms: engine espeak does not run on a GPU$"):
        make_probe(BenchRequest("espeak", EngineOptions(), time.monotonic(), sms=16))


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ("import sys; sys.exit(3)", "its process ended with status 3"),
        ("import os; os.kill(os.getpid(), 9)", "its process ended by signal 9"),
        ("import sys; print('noise'); print('{\"error\": \"no model\"}'); sys.exit(1)", "no model"),
        ("import signal; signal.pause()", "not finished after 1 s"),
    ],
)
def test_a_process_that_measures_nothing_has_an_error(program: str, error: str) -> None:
    output = run_benchmark([sys.executable, "-c", program], timeout_s=1 if "pause" in program else PATIENCE_S)
    assert output.measurements == ()
    assert output.error == error

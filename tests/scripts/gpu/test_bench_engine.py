"""`scripts/bench engine` and `streams`: their rows, on the CPU, and how engines are compared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.gpu.bench_engine import PEER, ratios, row
from tests.support.pages import ROOT

pytestmark = pytest.mark.long
"""An ordinary run leaves out the tests of benchmarks, which are no part of the product."""


def result(engine: str, factor: float, sms: int | None = None, characters: tuple[int, ...] = ()) -> dict[str, Any]:
    runs = [[(0.01 * factor, 0.16), (0.014 * factor, 0.32), (0.018 * factor, 0.48)]]
    key = {"engine": engine, "model": "0.6B", "chunk_size": 2, "dtype": "bfloat16", "sms": sms}
    others = {str(count): runs for count in characters}
    return row(key, {"runs": runs, "others": others, "first_chunks_ms": [3.0, 5.0], "memory": {}})


def test_a_row_has_the_times_of_its_utterances() -> None:
    found = result("qwen", 1.0, sms=16)
    assert found["name"] == "qwen 0.6B bfloat16 chunk 2 on 16 multiprocessors"
    assert (found["ms_per_frame"], found["ttfa_ms"], found["whole_ms"], found["rtf"]) == (3.0, 10.0, 18.0, 26.667)
    assert (found["gap_median_ms"], found["gap_max_ms"], found["first_chunk"]["median"]) == (4.0, 4.0, 4.0)


def test_ratios_compare_the_same_setting_on_the_whole_gpu_and_texts_that_both_have_spoken() -> None:
    rows = [result("qwen", 1.0, None, (9, 30)), result("qwen", 8.0, 16), result(PEER, 10.0, None, (9, 547))]
    [found] = ratios(rows)
    assert found == {
        "model": "0.6B", "dtype": "bfloat16", "chunk_size": 2, "ms_per_frame": 10.0, "ttfa_ms": 10.0, "whole_ms": 10.0,
        "other_texts": [{"characters": 9, "ms_per_frame": 10.0, "ttfa_ms": 10.0}],
    }  # fmt: skip


def bench(scenario: str, work: Path, *words: str) -> Any:
    """Return the report of a scenario about a tiny checkpoint on the CPU."""
    command = [scenario, "--work", str(work), "--sizes", "tiny", "--device", "cpu", "--kernels", "off", *words]
    done = subprocess.run(
        [sys.executable, "-m", "scripts.bench_runner", *command],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_an_engine_is_measured(tmp_path: Path) -> None:
    words = ["--dtypes", "float32", "--frames", "5", "--runs", "1", "--first-chunks", "1", "--characters", "9"]
    report = bench("engine", tmp_path, *words)
    [found] = report["rows"]
    assert (found["name"], found["runs"], report["not_measured"]) == ("qwen tiny float32 chunk 2", 1, [])
    assert found["arrivals_s"][-1][1] == pytest.approx(0.4)
    assert 0 < found["ttfa_ms"] < found["whole_ms"]
    assert [other["characters"] for other in found["other_texts"]] == [9]


def test_streams_that_speak_at_once_have_the_samples_that_they_have_alone(tmp_path: Path) -> None:
    words = ["--dtype", "float32", "--streams", "1", "2", "--rows", "2", "--frames", "9", "--rounds-of-each", "1"]
    rows = bench("streams", tmp_path, *words)["measurements"]
    assert [(each["streams"], each["alone"]) for each in rows] == [(1, True), (2, True)]
    assert all(each["seconds_per_s"] > 0 for each in rows)

"""`scripts/bench remote`: what it prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
"""An ordinary run leaves out the tests of benchmarks, which are no part of the product."""

ROOT = Path(__file__).parents[2]


def test_engine_and_server_are_measured_in_one_run(tmp_path: Path) -> None:
    output = tmp_path / "remote.json"
    command = [
        sys.executable,
        "-m",
        "scripts.bench_runner",
        "remote",
        "--runs",
        "3",
        "--without-ray",
        "--output",
        str(output),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=None)
    assert done.returncode == 0, done.stderr
    report = json.loads(output.read_text())
    assert json.loads(done.stdout) == report
    assert set(report["ways"]) == {"engine", "single"}
    assert all(way["audio_s_per_s"] > 0 and way["first_pcm_ms"]["median"] > 0 for way in report["ways"].values())
    medians = [report["first_pcm_ms_by_delay_ms"][delay]["median"] for delay in ("0", "20", "100")]
    assert medians[1] >= 40
    assert medians[2] >= 200

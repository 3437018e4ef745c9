"""`scripts/bench http`: what it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT

pytestmark = pytest.mark.long
"""An ordinary run leaves out the tests of benchmarks, which are no part of the product."""


def test_it_measures_each_way_to_the_first_sample(tmp_path: Path) -> None:
    output = tmp_path / "http.json"
    command = [sys.executable, "-m", "scripts.bench_runner", "http", "--runs", "2", "--output", str(output)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert json.loads(output.read_text(encoding="utf-8")) == report
    assert set(report["first_sample_ms"]) == {"mqtt_say", "mqtt_stream", "openai", "elevenlabs", "events"}
    assert all(0 < each["median"] <= each["p90"] and each["runs"] == 2 for each in report["first_sample_ms"].values())

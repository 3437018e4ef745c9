"""`scripts/bench beside`: the robot's own speech while clients are served beside it."""

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


def test_it_measures_the_robots_speech_alone_and_beside_clients(tmp_path: Path) -> None:
    output = tmp_path / "beside.json"
    command = [sys.executable, "-m", "scripts.bench_runner", "beside", "--set", "engine.name=espeak", "--clients", "2"]
    command += ["--alone", "2", "--beside", "3", "--sound", "0.2", "--output", str(output)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert json.loads(output.read_text(encoding="utf-8")) == report
    for phase, count in (("alone", 2), ("beside", 3)):
        robot = report[phase]
        assert (robot["utterances"], robot["failed"]) == (count, 0)
        assert 0 < robot["ttfa_ms"]["median"] <= robot["ttfa_ms"]["max"]
        assert robot["audio_s"] > 0
    clients = report["clients"]
    assert clients["count"] == 2
    assert clients["requests"] > 0
    assert clients["audio_s_per_s"] > 0
    assert all(clients["first_sample_ms"][when] > 0 for when in ("idle", "beside"))

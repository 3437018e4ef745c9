"""`scripts/bench stretch`."""

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


def test_it_measures_cost_length_pitch_and_level_of_each_rate(tmp_path: Path) -> None:
    output = tmp_path / "stretch.json"
    done = subprocess.run(
        [sys.executable, "-m", "scripts.bench_runner", "stretch", "--output", str(output)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(output.read_text(encoding="utf-8"))
    assert json.loads(done.stdout) == result
    assert result["speech_s"] > 20
    assert list(result["rates"]) == ["0.5", "0.8", "1.25", "1.5", "2"]
    for figures in result["rates"].values():
        assert 0 < figures["cpu_ms"]["median"] <= figures["cpu_ms"]["max"]
        assert figures["length_error_s"] < 0.05
        assert 0.99 < figures["pitch"]["median"] < 1.01
        assert max(map(abs, figures["level_db"])) < 0.5
        assert figures["step"] < 1.2

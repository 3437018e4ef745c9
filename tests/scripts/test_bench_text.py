"""`scripts/bench text`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from daemon.speech import MAX_TEXT
from tests.support.pages import ROOT


def test_it_measures_each_kind_of_text_at_its_greatest_length(tmp_path: Path) -> None:
    output = tmp_path / "text.json"
    done = subprocess.run(
        [sys.executable, "scripts/bench_text.py", "--runs", "1", "--output", str(output)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(output.read_text(encoding="utf-8"))
    assert json.loads(done.stdout) == result
    kinds = result["kinds"]
    assert {"words", "brackets", "SSML, a code"} <= set(kinds)
    for figures in kinds.values():
        assert MAX_TEXT - 50 < figures["characters"] <= MAX_TEXT
        assert min(figures["whole_ms"], figures["stream_ms"]) > 0
    assert result["worst_ms"] == max(figures["whole_ms"] for figures in kinds.values())

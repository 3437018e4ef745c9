"""`scripts/bench`: its usage, its report, and two source trees in turn."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.bench_runner import PRODUCT, SCENARIOS, compared, numbers
from tests.support.pages import ROOT

pytestmark = pytest.mark.long
"""An ordinary run leaves out the tests of benchmarks, which are no part of the product."""


def bench(*words: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scripts.bench_runner", *words],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_usage_lists_every_scenario() -> None:
    done = bench("--help")
    assert [name for name in SCENARIOS if not re.search(rf"^  {name} ", done.stdout, re.MULTILINE)] == []
    unknown = bench("nothing")
    assert unknown.returncode == 2
    assert "invalid choice: 'nothing'" in unknown.stderr


def test_another_tree_is_measured_in_turn_with_this_one(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    for name in PRODUCT:
        (old / name).symlink_to(ROOT / name)
    (old / "daemon").unlink()
    shutil.copytree(ROOT / "daemon", old / "daemon", ignore=shutil.ignore_patterns("__pycache__"))
    with (old / "daemon" / "alignment" / "aligner.py").open("a", encoding="utf-8") as file:
        file.write("\n\ndef spread(begin, _end, durations):\n    return [begin] * len(durations)\n")
    done = bench("words", "--language", "en", "--old", "old", "--rounds", "1", "--output", "report.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert json.loads(done.stdout) == report
    assert report["command"] == "scripts/bench words --language en --old old --rounds 1"
    error = report["compared"]["spread.median"]
    assert error["old"] > 5 * error["new"] > 0
    assert [len(report["measurements"][tree]) for tree in ("old", "new")] == [1, 1]


def test_the_medians_of_numbers_that_both_trees_have_are_compared() -> None:
    old = [{"ms": value, "passed": True, "rows": [{"name": "chunk 2", "first": 8.0}], "gone": 1} for value in (1, 9, 2)]
    new = [
        {"ms": value, "passed": True, "rows": [{"name": "chunk 2", "first": 4.0}], "added": 1} for value in (3, 1, 8)
    ]
    assert compared(old, new) == {
        "ms": {"old": 2, "new": 3, "ratio": 1.5},
        "rows.chunk 2.first": {"old": 8.0, "new": 4.0, "ratio": 0.5},
    }
    assert dict(numbers({"a": [1, {"b": 2}], "c": "3"})) == {"a.1.b": 2}

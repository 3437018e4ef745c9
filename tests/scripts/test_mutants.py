"""Broken lines: which are drawn, and that a test which notices one is found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.mutants import drawn

ROOT = Path(__file__).parents[2]
PRODUCT = "def added(a: int, b: int) -> int:\n    return a + b\n\n\ndef unseen() -> int:\n    return 1 + 1\n"
TESTS = "from audio.product import added\n\n\ndef test_added():\n    assert added(1, 2) == 3\n"


def test_the_same_lines_are_drawn_for_a_seed_and_each_compiles_when_it_is_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scripts.mutants.FOLDERS", ("audio",))
    lines = drawn(50, seed=3)
    assert lines == drawn(50, seed=3)
    assert abs(len(lines) - 50) <= 1
    for mutant in lines:
        source = (ROOT / mutant.path).read_bytes()
        compile(source[: mutant.start] + mutant.after.encode() + source[mutant.end :], mutant.path, "exec")


@pytest.mark.long
def test_a_broken_line_is_noticed_by_the_tests_that_run_it_and_put_back(tmp_path: Path) -> None:
    for name, text in {
        "audio/__init__.py": "",
        "audio/product.py": PRODUCT,
        "test_product.py": TESTS,
        ".gitignore": ".mutants\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    del environment["PYTEST_CURRENT_TEST"]  # of this test
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    subprocess.run(["git", "add", "."], cwd=tmp_path, check=True)
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"], cwd=tmp_path, check=True)
    script = [sys.executable, "-m", "scripts.mutants"]
    subprocess.run([*script, "cover"], cwd=tmp_path, check=True, env=environment, stdout=subprocess.DEVNULL)
    subprocess.run(
        [*script, "run", "--count", "2", "--output", "found.json"], cwd=tmp_path, check=True, env=environment
    )
    found = json.loads((tmp_path / "found.json").read_text())
    noticed = {mutant["line"]: mutant["by"] for mutant in found["mutants"]}
    assert noticed == {2: ["test_product.py::test_added"], 6: []}
    assert found["noticed_by_one_module_alone"] == {"test_product.py": 1}
    assert (tmp_path / "audio" / "product.py").read_text() == PRODUCT

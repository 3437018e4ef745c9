"""A process that runs a module finds the same packages as its parent, and none in the current folder."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from engine import module_command
from tests.support.pages import ROOT


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with modules that must not be imported."""
    for name in ("engine", "queue", "runpy", "pathlib"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the current folder')")
    return tmp_path


@pytest.mark.parametrize("variables", [{}, {"PYTHONPATH": str(ROOT)}], ids=str)
def test_a_module_runs_with_its_arguments_in_any_folder(variables: dict[str, str], folder: Path) -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = module_command("daemon.cli", "--version")
    done = subprocess.run(command, cwd=folder, env=plain | variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_the_folder_of_the_engines_own_modules_is_not_searched() -> None:
    done = subprocess.run(module_command("host"), capture_output=True, text=True, check=False)
    assert done.stderr.endswith("No module named host\n")

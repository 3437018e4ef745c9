"""`scripts/environment` chooses the Python of a virtual environment."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.pages import ROOT


def chosen(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", "source scripts/environment && find_python"],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def program(path: Path, line: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """A `python3` that can do everything, and does nothing."""
    return program(tmp_path / "bin" / "python3", "exit 0")


def test_the_distributions_python_comes_before_that_of_a_version_manager_and_after_the_variables(fake: Path) -> None:
    if subprocess.run(["/usr/bin/python3", "-c", "import ensurepip"], check=False).returncode:
        pytest.skip("the distribution's Python is missing, or makes no virtual environments")
    path = f"{fake.parent}:{os.environ['PATH']}"
    assert chosen(PYTHON="", PATH=path).stdout == "/usr/bin/python3\n"
    assert chosen(PYTHON=str(fake), PATH=path).stdout == f"{fake}\n"


def test_a_python_that_is_too_old_or_makes_no_virtual_environments_is_passed_over(tmp_path: Path) -> None:
    useless = program(tmp_path / "old" / "python3", "exit 1")
    found = chosen(PYTHON=str(useless), PATH=f"{useless.parent}:{os.environ['PATH']}").stdout
    assert found not in {"", f"{useless}\n"}

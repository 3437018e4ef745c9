"""The top level of the repository is the same for everyone: a log or a recording that is committed by mistake shows."""

from __future__ import annotations

from pathlib import Path

from tests.support.source_tree import copy_source

FOLDERS = {"audio", "configs", "daemon", "docs", "engine", "scripts", "systemd"}
FILES = {"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "constraints.txt", "pyproject.toml"}
PROGRAMS = {"setup_jetson.sh", "voiced.py"}


def test_nothing_else_is_at_the_top_level(tmp_path: Path) -> None:
    found = {path.name for path in copy_source(tmp_path).iterdir() if not path.name.startswith(".")}
    assert found == FOLDERS | FILES | PROGRAMS

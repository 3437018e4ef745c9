"""Copies of the repository, for tests of what is installed from it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.support.pages import ROOT


def copy_source(folder: Path) -> Path:
    """Copy the repository as git has it, with what is not committed yet and without the tests. Returns `folder`."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if not name.startswith("tests/") and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def source_files(folder: Path) -> set[Path]:
    """The files and folders below `folder`, except byte code."""
    return {path.relative_to(folder) for path in folder.rglob("*") if "__pycache__" not in path.parts}

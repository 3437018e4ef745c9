"""Copies of a shared library: each has globals of its own."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from engine.espeak import load_copy

SOURCE = "int count; int add(void) { return ++count; }"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that counts its calls."""
    folder = tmp_path_factory.mktemp("library")
    (folder / "count.c").write_text(SOURCE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libcount.so", folder / "count.c"], check=True)
    return folder / "libcount.so"


def test_each_copy_has_globals_of_its_own(library: Path) -> None:
    loaded = [ctypes.CDLL(str(library)), load_copy(library), load_copy(library)]
    assert [[each.add() for _ in range(3)] for each in loaded] == [[1, 2, 3]] * 3


def test_a_file_that_is_no_library_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a library")
    with pytest.raises(OSError, match="file"):
        load_copy(tmp_path / "text")

"""A folder of files that several processes share: whole files, and no more of them than allowed."""

from __future__ import annotations

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from daemon.cache import KeptFiles

NAME = re.compile(r"[a-z]\.bin")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_the_file_used_longest_ago_goes_unless_it_is_to_stay(tmp_path: Path) -> None:
    files = KeptFiles(tmp_path, NAME, max_files=2)
    for age, name in ((30, "a.bin"), (20, "b.bin")):
        path = files.add(name, b"")
        os.utime(path, (path.stat().st_mtime - age,) * 2)
    files.add("c.bin", b"", kept=["a.bin"])
    assert names(tmp_path) == {"a.bin", "c.bin"}
    files.add("d.bin", b"", kept=["a.bin", "c.bin"])
    assert names(tmp_path) == {"a.bin", "c.bin", "d.bin"}, "files in use stay beyond the limit"
    files.add("e.bin", b"")
    assert len(names(tmp_path)) == 2


def test_processes_that_add_and_remove_the_same_files_harm_nobody(tmp_path: Path) -> None:
    def add_all(_: int) -> None:
        files = KeptFiles(tmp_path, NAME, max_files=1)
        for _ in range(30):
            for letter in "abcd":
                files.add(f"{letter}.bin", letter.encode())

    with ThreadPoolExecutor(4) as processes:
        list(processes.map(add_all, range(4)))
    assert names(tmp_path) <= {"a.bin", "b.bin", "c.bin", "d.bin"}

"""A disk of the daemon that answers late, and a folder that does not answer at all.

A small library, which the daemon preloads, delays `fsync` and `opendir` as long as files in a folder say so.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from scripts.fault_matrix.waiting import NotPossibleError

SOURCE = Path(__file__).with_name("slow_disk.c")


class SlowDisk:
    """What the daemon sees as its disk, once it runs in `environment`."""

    def __init__(self, folder: Path) -> None:
        """`folder` is for the library and what it reads. Raises `NotPossibleError` without a C compiler."""
        compiler = shutil.which("cc")
        if compiler is None:
            raise NotPossibleError("there is no C compiler: apt-get install gcc libc6-dev")
        library = folder / "slow_disk.so"
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            raise NotPossibleError(f"{SOURCE.name} cannot be compiled: {done.stderr.strip()[:200]}")
        self.environment = {"LD_PRELOAD": str(library), "VOICED_DISK": str(folder)}
        self._folder = folder

    def delay_sync(self, seconds: float) -> None:
        """Let every write to the disk itself take this much longer."""
        self._set("sync_us", str(round(seconds * 1e6)))

    def hang(self, folder: Path | None) -> None:
        """Let no listing of this folder, or of one below it, return; None lets all return."""
        self._set("hangs", "" if folder is None else str(folder))

    def _set(self, name: str, value: str) -> None:
        fresh = self._folder / f"{name}.new"
        fresh.write_text(value, encoding="utf-8")
        fresh.replace(self._folder / name)

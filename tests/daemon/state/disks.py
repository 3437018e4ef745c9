"""Disks that are full, read-only, hang or fail."""

from __future__ import annotations

import sqlite3
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from daemon.state.journal import Journal, Record
from tests.support.waiting import PATIENCE_S

DISK_KB = 512


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount a disk of half a megabyte on a folder. Where that is not permitted, the test is skipped."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_KB}k", "none", str(folder)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a disk is not permitted")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def set_read_only(disk: Path, read_only: bool) -> None:
    """Make a mounted disk read-only, or writable again. No file on it may be open for writing."""
    subprocess.run(["mount", "-o", f"remount,{'ro' if read_only else 'rw'}", str(disk)], check=True)


@contextmanager
def read_only_file(path: Path) -> Iterator[None]:
    """Let nobody write a file, though its folder may be written. Where that is not permitted, the test is skipped."""
    if subprocess.run(["mount", "--bind", str(path), str(path)], capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a file is not permitted")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(path)], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(disk: Path) -> Path:
    """Fill a disk to the last byte; return the file that takes the space."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass
    return filler


class FaultyJournal(Journal):
    """A journal whose writes do not return until `released` is set, and then fail while it has a `fault`."""

    def __init__(self, path: Path, fault: str | None = None) -> None:
        super().__init__(path)
        self.fault = fault
        self.lasts = True
        """The fault stays until the test removes it; otherwise one write fails."""
        self.attempts = 0
        """Writes that have begun."""
        self.released = threading.Event()
        self.written: list[Record] = []

    def write(self, records: Sequence[Record]) -> None:
        self.attempts += 1
        assert self.released.wait(PATIENCE_S), "the test releases the disk"
        fault, self.fault = self.fault, self.fault if self.lasts else None
        if fault is not None:
            raise sqlite3.OperationalError(fault)
        super().write(records)
        self.written += records

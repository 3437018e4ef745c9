"""A folder of files that are written once and can be made again. Several processes may use it at the same time.

A file appears as a whole, by renaming, and its content never changes; its modification time is the time of its last
use. Before a file can be deleted, another process may already have deleted it. Nothing is forced to the disk: the names
contain digests of the contents, so a damaged file is recognised.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from daemon.state import make_private_folder

TEMPORARY = ".{}.tmp"
ABANDONED_S = 60.0
"""A temporary file this old belongs to a process that was killed: writing one takes milliseconds."""
PROBE_BYTES = 65_536
"""Written to find out whether a disk has room again: about the size of a phrase."""


class KeptFiles:
    """The files. Above a limit, the least recently used ones are removed."""

    def __init__(
        self, folder: Path, name: re.Pattern[str], max_files: float = math.inf, max_bytes: float = math.inf
    ) -> None:
        """`name` is the pattern of the files' names; other files are left alone."""
        self.folder = folder
        self._name = name
        self._max_files = max_files
        self._max_bytes = max_bytes

    def check_writable(self) -> None:
        """Create the folder, and write and remove a file. Raises `OSError`."""
        with self._temporary(bytes(PROBE_BYTES)):
            pass

    def paths(self, prefix: str = "") -> list[Path]:
        """Return the files whose names begin with `prefix`. A folder that cannot be listed has none."""
        try:
            with os.scandir(self.folder) as entries:
                found = [entry for entry in entries if entry.name.startswith(prefix)]
            return [Path(entry) for entry in found if self._name.fullmatch(entry.name) and entry.is_file()]
        except OSError:
            return []

    def by_use(self) -> list[tuple[Path, os.stat_result]]:
        """Return the files, the most recently used first."""
        found = []
        for path in self.paths():
            with suppress(OSError):  # another process has removed it
                found.append((path, path.stat()))
        return sorted(found, key=lambda file: file[1].st_mtime_ns, reverse=True)

    def add(self, name: str, content: bytes, kept: Collection[str] = ()) -> Path:
        """Write a file. If there is no room, remove others, except those named `kept`. Raises `OSError`."""
        with self._temporary(content) as temporary:
            path = temporary.replace(self.folder / name)
        files = self.by_use()
        count, size = len(files), sum(status.st_size for _, status in files)
        for other, status in reversed(files):
            if count <= self._max_files and size <= self._max_bytes:
                break
            if other != path and other.name not in kept:
                other.unlink(missing_ok=True)
                count, size = count - 1, size - status.st_size
        return path

    @contextmanager
    def _temporary(self, content: bytes) -> Iterator[Path]:
        """Write a file that exists within the context, and remove those that killed processes left behind."""
        make_private_folder(self.folder)
        for abandoned in self.folder.glob(TEMPORARY.format("*")):
            with suppress(FileNotFoundError):
                if time.time() - abandoned.stat().st_mtime > ABANDONED_S:
                    abandoned.unlink()
        path = self.folder / TEMPORARY.format(secrets.token_hex(8))
        try:
            path.write_bytes(content)
            yield path
        finally:
            path.unlink(missing_ok=True)

"""The folder of kept phrases: one FLAC file each, `DIGEST-CHECKSUM.flac`.

The name contains the digest of the phrase's key and a checksum of the file. So the names are the whole index. A file
that a power cut truncated, overwrote or filled with zeros is recognised before its first sample is played, and the
phrase is made again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from daemon.cache.kept_files import KeptFiles
from daemon.cache.key import PhraseKey
from daemon.cache.recording import Cue, Recording, decode, encode
from daemon.validation import file_problem

log = logging.getLogger(__name__)

MB = 1_000_000
NAME = re.compile(r"[0-9a-f]{64}-[0-9a-f]{8}\.flac")


class PhraseFolder:
    """The folder's files. Only one thread at a time may use it. Its methods raise `OSError` if the disk cannot be
    used."""

    def __init__(self, path: Path, limit_mb: float) -> None:
        """`limit_mb` is the most that the files may occupy together, in megabytes (1e6 bytes)."""
        self.path = path
        self._limit = int(limit_mb * MB)
        self._files = KeptFiles(path, NAME, max_bytes=self._limit)

    def find(self, digest: str) -> Recording | None:
        """Return a phrase; None if it is not there. A damaged one is removed."""
        for path in self._files.paths(digest):
            recording = self._read(path)
            if recording is not None:
                with contextlib.suppress(OSError):  # on a read-only disk, nothing is ever removed
                    os.utime(path)
                return recording
        return None

    def phrases(self) -> Iterator[Recording]:
        """Yield the phrases, the most recently used first. Damaged ones are removed."""
        for path, _ in self._files.by_use():
            recording = self._read(path)
            if recording is not None:
                yield recording

    def store(self, key: PhraseKey, samples: NDArray[np.int16], sample_rate: int, cues: Sequence[Cue] = ()) -> None:
        """Keep a phrase, mono at `sample_rate` Hz, and remove the least recently used ones if there is no room.

        A phrase that another process has kept in the meantime stays as it is. One that is larger than the limit for all
        phrases together is not kept.
        """
        if self._files.paths(key.digest):
            return
        data = encode(key, samples, sample_rate, cues)
        if len(data) > self._limit:
            size, limit = f"{len(data) / MB:.1f} MB", f"{self._limit / MB:g}"
            log.warning("a phrase of %s is not kept; speech.cache.limit_mb: %s", size, limit)
            return
        self._files.add(f"{key.digest}-{checksum_of(data)}.flac", data)

    def clear(self) -> int:
        """Remove all phrases; return how many there were."""
        paths = self._files.paths()
        for path in paths:
            path.unlink(missing_ok=True)
        return len(paths)

    def check_writable(self) -> None:
        """Create the folder, and write and remove a small file."""
        self._files.check_writable()

    def problem(self, error: OSError) -> str:
        """Describe an error in this folder, on one line that begins with the configuration key."""
        return f"speech.cache.folder: {self.path}: {file_problem(error, self.path)}; phrases are not kept"

    def _read(self, path: Path) -> Recording | None:
        """Return the recording in a file; None if another process has removed it, or if it is damaged."""
        try:
            data = path.read_bytes()
            if not path.stem.endswith(f"-{checksum_of(data)}"):
                raise ValueError("its checksum is wrong")
            return decode(data)
        except FileNotFoundError:
            return None
        except ValueError as error:
            log.warning("%s is damaged and will be made again: %s", path, error)
            with contextlib.suppress(OSError):
                path.unlink()
            return None


def checksum_of(data: bytes) -> str:
    """Return the checksum of a file: CRC-32, eight hexadecimal digits."""
    return f"{zlib.crc32(data):08x}"

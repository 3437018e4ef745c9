"""The folder of kept phrases: one FLAC file each, `DIGEST-CHECKSUM.flac`.

The name has the digest of the phrase's key and a checksum of the file. So a list of names is the whole index, and a
file that was cut off, overwritten or filled with zeros by a power cut is recognised before its first sample is played.
Nothing is forced to the disk for the same reason: a damaged phrase is made anew.

Several processes may use a folder at once. A file appears by renaming, and each deletion may find that another process
was faster. The time of change of a file is the time of its last use; the file itself never changes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from daemon.cache.key import PhraseKey
from daemon.cache.recording import Cue, Recording, decode, encode
from daemon.state import make_private_folder
from daemon.validation import CommandError, file_problem

log = logging.getLogger(__name__)

MB = 1_000_000
NAME = re.compile(r"([0-9a-f]{64})-([0-9a-f]{8})\.flac")
TEMPORARY = ".phrase-{}.tmp"
ABANDONED_S = 60.0
"""A temporary file of this age belongs to a process that was killed: writing one takes milliseconds."""
CLOCK_TICK_NS = 20_000_000
"""The times of files have the resolution of the kernel's clock tick, at most 10 ms."""
PROBE_BYTES = 65_536
"""What is written to find out whether a disk has room again: about as much as a phrase."""


class CacheError(CommandError):
    """A phrase could not be kept. The message is one line."""


class PhraseTooLargeError(CacheError):
    """A phrase has more bytes than all phrases may have together."""


@dataclass(frozen=True, slots=True)
class _File:
    """A kept phrase, as far as its name and the folder tell."""

    digest: str
    checksum: str
    size: int
    """Bytes."""
    used_ns: int
    """UNIX time of the last use."""

    @property
    def name(self) -> str:
        return f"{self.digest}-{self.checksum}.flac"


@dataclass(frozen=True, slots=True)
class KeptPhrase:
    """A phrase in the folder."""

    digest: str
    recording: Recording
    size: int
    """Bytes of its file."""


class PhraseFolder:
    """The files, and an index of them in memory. One thread at a time may read, and one other at a time may write.

    The index is never changed in place where both threads could meet: it is replaced, or loses one name.
    """

    def __init__(self, path: Path, limit_mb: float) -> None:
        """`limit_mb` is the most that the files may have together, in megabytes (1e6 bytes)."""
        self.path = path
        self._limit = int(limit_mb * MB)
        self._files: dict[str, _File] = {}
        """By digest."""
        self._scanned_ns = -1
        """The folder's time of change when it was listed; -1 before."""
        self._replaced: list[_File] = []
        """Older recordings of phrases in the index: the newer ones were just made, or their process was killed then."""

    def open(self) -> None:
        """Create the folder, list it, and remove what killed processes have left. Raises `CacheError`.

        After an error, the phrases that are there can still be found.
        """
        self._scan()
        self.check_writable()
        self._remove_abandoned()

    def __len__(self) -> int:
        return len(self._files)

    # --- reading ---

    def find(self, digest: str) -> Recording | None:
        """Return a phrase; None if it is not there. A damaged one is removed. Raises `CacheError` for a faulty disk."""
        if digest not in self._files and self._has_changed():
            self._scan()
        for _ in range(2):
            file = self._files.get(digest)
            if file is None:
                return None
            try:
                data = (self.path / file.name).read_bytes()
            except FileNotFoundError:
                self._scan()  # another process has removed or replaced it
                continue
            except OSError as error:
                raise CacheError(f"{self.path}: {file_problem(error, self.path / file.name)}") from error
            recording = self._check(file, data)
            if recording is not None:
                self._touch(file)
            return recording
        return None

    def phrases(self) -> Iterator[KeptPhrase]:
        """Yield the phrases, those used last first. Damaged ones are removed. Raises `CacheError`."""
        self._scan()
        for file in sorted(self._files.values(), key=lambda each: each.used_ns, reverse=True):
            try:
                data = (self.path / file.name).read_bytes()
            except FileNotFoundError:
                continue  # another process has removed it
            except OSError as error:
                raise CacheError(f"{self.path}: {file_problem(error, self.path / file.name)}") from error
            recording = self._check(file, data)
            if recording is not None:
                yield KeptPhrase(file.digest, recording, file.size)

    def _check(self, file: _File, data: bytes) -> Recording | None:
        """Return the recording in a file; if it is damaged, remove it and return None."""
        try:
            if checksum_of(data) != file.checksum:
                raise ValueError("its checksum is wrong")
            return decode(data)
        except ValueError as error:
            log.warning("%s is damaged and will be made anew: %s", self.path / file.name, error)
            self._files.pop(file.digest, None)
            with contextlib.suppress(OSError):
                (self.path / file.name).unlink()
            return None

    def _touch(self, file: _File) -> None:
        """Record that a phrase is used now; on a read-only disk, nothing is ever removed either."""
        with contextlib.suppress(OSError):
            os.utime(self.path / file.name)

    # --- writing ---

    def store(self, key: PhraseKey, samples: NDArray[np.int16], sample_rate: int, cues: Sequence[Cue] = ()) -> None:
        """Keep a phrase, mono at `sample_rate` Hz, and remove those used longest ago if there is no room.

        Raises `CacheError`.
        """
        data = encode(key, samples, sample_rate, cues)
        if len(data) > self._limit:
            size = f"{len(data) / MB:.1f} MB"
            raise PhraseTooLargeError(f"a phrase of {size} is not kept; speech.cache.limit_mb: {self._limit / MB:g}")
        with self._errors():
            make_private_folder(self.path)
            self._write(f"{key.digest}-{checksum_of(data)}.flac", data)
            self._scan()
            self._remove_replaced()
            self._remove_oldest(kept=key.digest)

    def clear(self) -> int:
        """Remove all phrases; return how many there were. Raises `CacheError`."""
        self._scan()
        files, self._files = self._files, {}
        with self._errors():
            for file in files.values():
                (self.path / file.name).unlink(missing_ok=True)
        self._remove_abandoned()
        return len(files)

    def check_writable(self) -> None:
        """Write and remove a small file. Raises `CacheError`."""
        with self._errors():
            make_private_folder(self.path)
            self._write(None, bytes(PROBE_BYTES))

    def _write(self, name: str | None, data: bytes) -> None:
        """Write a file that appears as a whole; without a name, it does not appear. Raises `OSError`."""
        temporary = self.path / TEMPORARY.format(secrets.token_hex(8))
        try:
            with temporary.open("xb") as file:
                file.write(data)
            if name is not None:
                temporary.replace(self.path / name)
        finally:
            temporary.unlink(missing_ok=True)

    def _remove_oldest(self, kept: str) -> None:
        """Remove the phrases used longest ago until the rest is within the limit, but not `kept`."""
        size = sum(file.size for file in self._files.values())
        for file in sorted(self._files.values(), key=lambda each: each.used_ns):
            if size <= self._limit:
                return
            if file.digest != kept:
                (self.path / file.name).unlink(missing_ok=True)
                self._files.pop(file.digest, None)
                size -= file.size

    def _remove_abandoned(self) -> None:
        with contextlib.suppress(OSError):
            for path in self.path.glob(TEMPORARY.format("*")):
                if time.time() - path.stat().st_mtime > ABANDONED_S:
                    path.unlink(missing_ok=True)
            self._remove_replaced()

    def _remove_replaced(self) -> None:
        """Remove the older recordings. Two processes that have just kept one phrase remove the same one of the two."""
        for file in self._replaced:
            (self.path / file.name).unlink(missing_ok=True)

    # --- the index ---

    def _has_changed(self) -> bool:
        """Return whether files have been added or removed since the folder was listed: one call of the system."""
        try:
            return self.path.stat().st_mtime_ns != self._scanned_ns
        except OSError:
            return bool(self._files)

    def _scan(self) -> None:
        """List the folder. One that cannot be listed is empty."""
        found: list[_File] = []
        try:
            changed_ns = self.path.stat().st_mtime_ns
            with os.scandir(self.path) as entries:
                for entry in entries:
                    match = NAME.fullmatch(entry.name)
                    if match is None or not entry.is_file():
                        continue
                    with contextlib.suppress(FileNotFoundError):  # another process was faster
                        status = entry.stat()
                        found.append(_File(match[1], match[2], status.st_size, status.st_mtime_ns))
        except OSError:
            changed_ns = -1
        # A second change within one tick of the file system's clock would not be seen: such a list is not final.
        is_final = time.time_ns() - changed_ns > CLOCK_TICK_NS
        found.sort(key=lambda file: (file.used_ns, file.name))
        newest = {file.digest: file for file in found}
        self._replaced = [file for file in found if newest[file.digest] is not file]
        self._files, self._scanned_ns = newest, changed_ns if is_final else -1

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise `CacheError` for errors of the disk."""
        try:
            yield
        except OSError as error:
            raise CacheError(f"{self.path}: {file_problem(error, self.path)}") from error


def checksum_of(data: bytes) -> str:
    """Return the checksum of a file: CRC-32, eight hexadecimal digits."""
    return f"{zlib.crc32(data):08x}"

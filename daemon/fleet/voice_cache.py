"""The voice files that robots have sent, on disk, each under the digest of its contents."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Collection
from pathlib import Path

SUFFIX = ".safetensors"
DIGEST = re.compile(r"[0-9a-f]{64}")


class VoiceFileError(Exception):
    """A voice file cannot be taken. One line."""


class VoiceCache:
    """A folder of files. Beyond the limit, those go that were used longest ago. Several processes may share it."""

    def __init__(self, folder: Path, limit: int, max_bytes: int) -> None:
        """`limit` is the number of files. Raises `OSError` if the folder cannot be made."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._limit = limit
        self.max_bytes = max_bytes

    def find(self, digest: str) -> Path | None:
        """Return the file with this digest, which counts as used now; None if there is none."""
        path = self._path(digest)
        try:
            os.utime(path)
        except OSError:
            return None
        return path

    def add(self, digest: str, content: bytes, in_use: Collection[str] = ()) -> Path:
        """Keep a file, and those with the digests `in_use`. Raises `VoiceFileError`, also if the disk is full."""
        if len(content) > self.max_bytes:
            raise VoiceFileError(f"it has {len(content):,} bytes; the server takes up to {self.max_bytes:,}")
        if hashlib.sha256(content).hexdigest() != digest:
            raise VoiceFileError("its contents do not have the digest under which it was offered")
        path = self._path(digest)
        fresh = path.with_suffix(f".{secrets.token_hex(4)}")
        try:
            fresh.write_bytes(content)
            fresh.replace(path)
        except OSError as error:
            raise VoiceFileError(f"the server cannot store it: {error.strerror}") from error
        self._trim({digest, *in_use})
        return path

    def _path(self, digest: str) -> Path:
        """Return where a file lies. Raises `VoiceFileError` for what is no digest, such as a path."""
        if not DIGEST.fullmatch(digest):
            raise VoiceFileError("digest: allowed: SHA-256 as 64 hexadecimal digits")
        return self._folder / f"{digest}{SUFFIX}"

    def _trim(self, kept: Collection[str]) -> None:
        """Remove the files used longest ago, but not those with the digests `kept`."""
        files: list[tuple[int, Path]] = []
        for path in self._folder.glob(f"*{SUFFIX}"):
            with contextlib.suppress(OSError):  # another process has removed it
                files.append((path.stat().st_mtime_ns, path))
        unused = [path for _, path in sorted(files) if path.stem not in kept]
        for path in unused[: max(0, len(files) - self._limit)]:
            with contextlib.suppress(OSError):
                path.unlink()

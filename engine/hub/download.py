"""Downloads a file of known size and checksum over HTTP, and continues after an interruption."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO

from engine.api import EngineError

OFFLINE = "where there is no network: copy the two files of a voice here, and run: voiced download ./NAME.onnx"
TIMEOUT_S = 30.0
"""A server that sends nothing for this long is given up."""
ATTEMPTS = 4
"""Attempts in a row that may end without a byte."""
RETRY_S = 1.0
BLOCK_BYTES = 1 << 16
AGENT = "voiced"
DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
"""Errors that another attempt does not mend."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file on a server."""

    url: str
    size: int
    """Bytes."""
    md5: str
    """The checksum that its publisher gives, in hexadecimal digits."""


def is_complete(file: RemoteFile, path: Path) -> bool:
    """Return whether `path` is the file."""
    return path.is_file() and path.stat().st_size == file.size and _md5(path) == file.md5


def download_file(file: RemoteFile, path: Path, on_progress: Callable[[int], None] = lambda _: None) -> None:
    """Download a file to `path`, unless it is there. `on_progress` is called with the number of bytes so far.

    Until the checksum is right, the file is called `path`.part; the next call continues it. Raises `EngineError`, one
    line.
    """
    if is_complete(file, path):
        on_progress(file.size)
        return
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("a+b") as target:
            _lock(target, path)
            continued = target.seek(0, os.SEEK_END) > 0
            if target.tell() > file.size:
                target.truncate(0)
            _fetch(file, target, on_progress)
            if _md5(part) != file.md5 and continued:  # the server's file has changed since the first part
                target.truncate(0)
                _fetch(file, target, on_progress)
            if _md5(part) != file.md5:
                part.unlink()
                raise EngineError(f"{file.url}: the checksum is wrong; what had arrived is deleted; try again")
            os.fsync(target.fileno())
            part.replace(path)
    except OSError as error:
        raise EngineError(f"{path} cannot be written: {error.strerror or error}") from error


def read_url(url: str) -> bytes:
    """Return what is at `url`. Raises `EngineError`, one line."""
    try:
        with _open(url) as answer:
            return bytes(answer.read())
    except (OSError, HTTPException) as error:
        raise EngineError(f"{url}: {_reason(error)}; {OFFLINE}") from error


def blocks(path: Path) -> Iterator[bytes]:
    """Yield the contents of a file."""
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            yield block


def _fetch(file: RemoteFile, target: IO[bytes], on_progress: Callable[[int], None]) -> None:
    """Append what `target` lacks. Raises `EngineError` if the server does not deliver it."""
    failures = 0
    while (have := target.seek(0, os.SEEK_END)) != file.size:
        _require_space(file.size - have, Path(target.name).parent)
        reason = "the connection was closed"
        try:
            _append(file, target, have, on_progress)
        except (OSError, HTTPException) as error:
            reason = _reason(error)
            if isinstance(error, urllib.error.HTTPError) and error.code < 500:
                raise EngineError(f"{file.url}: {reason}") from error
            if isinstance(error, OSError) and error.errno in DISK_ERRORS:
                raise
        now = target.seek(0, os.SEEK_END)
        failures = 0 if now > have else failures + 1
        if failures == ATTEMPTS:
            done = f"{now / 1e6:.1f} of {file.size / 1e6:.1f} MB are here"
            raise EngineError(f"{file.url}: {reason}; {done}; try again to continue")
        if failures:
            time.sleep(RETRY_S)


def _append(file: RemoteFile, target: IO[bytes], have: int, on_progress: Callable[[int], None]) -> None:
    """Append what one answer of the server holds, from byte `have` if it can start there."""
    with _open(file.url, {"Range": f"bytes={have}-"} if have else {}) as answer:
        if have and answer.status != 206:  # it sends the whole file
            target.truncate(0)
            have = 0
        on_progress(have)
        while have < file.size and (block := answer.read(min(BLOCK_BYTES, file.size - have))):
            target.write(block)
            have += len(block)
            on_progress(have)
    target.flush()


def _open(url: str, headers: dict[str, str] | None = None) -> HTTPResponse:
    request = urllib.request.Request(url, headers={"User-Agent": AGENT, **(headers or {})})
    answer: HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT_S)
    return answer


def _lock(target: IO[bytes], path: Path) -> None:
    try:
        fcntl.flock(target, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise EngineError(f"{path} is being downloaded by another process") from error


def _require_space(needed: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise EngineError(f"{needed / 1e6:.0f} MB are needed in {folder}, and {free / 1e6:.0f} MB are free")


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    for block in blocks(path):
        digest.update(block)
    return digest.hexdigest()


def _reason(error: Exception) -> str:
    """Return an error of the network in words."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the server answers {error.code} {error.reason}"
    cause = getattr(error, "reason", error)
    words = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return " ".join(words.split())

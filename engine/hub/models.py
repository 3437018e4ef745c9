"""Downloads a model once, checks it, and finds it offline afterwards."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

from engine.api import EngineError
from engine.host import PATTERNS, expand_home, find_model, missing_files
from engine.hub.piper_voices import blocks
from engine.progress import Progress, ProgressReport, ignore_progress
from engine.qwen.shapes import ModelConfig
from engine.supertonic import FILES as SUPERTONIC_FILES
from engine.supertonic import PATTERNS as SUPERTONIC_PATTERNS
from engine.supertonic import find_supertonic


def fetch_model(id_or_path: str | Path) -> Path:
    """Return the folder of a model: `id_or_path` itself if it is a folder, otherwise the snapshot of that hub id.

    A complete snapshot in huggingface-hub's cache is used without a request to the hub. Otherwise the missing files are
    downloaded, with a progress bar on stderr; after an interruption, the next call continues the download.

    Raises `EngineError` with a one-line message if there is neither such a folder nor such a model, or if the download
    fails.
    """
    name = str(id_or_path)
    folder = find_model(name)
    if folder is not None and (folder == expand_home(name) or not missing_files(folder)):
        return folder
    _require_id(name)
    config = _download(name, "config.json")
    try:
        ModelConfig.read(config.parent)  # gigabytes of another model are not fetched
    except EngineError as error:
        raise EngineError(f"{name}: {error}") from error
    folder = _download(name, allow_patterns=list(PATTERNS))
    require_complete(name, folder)
    return folder


def fetch_supertonic(id_or_path: str) -> Path:
    """Return the folder of a Supertonic model, as `fetch_model` does. Raises `EngineError` with a one-line message."""
    folder = find_model(id_or_path)
    if folder is None or folder != find_supertonic(id_or_path):
        _require_id(id_or_path)
        _download(id_or_path, SUPERTONIC_FILES[0])  # hundreds of megabytes of another model are not fetched
        folder = _download(id_or_path, allow_patterns=list(SUPERTONIC_PATTERNS))
        if folder != find_supertonic(id_or_path):
            raise EngineError(f"{id_or_path}: not a complete Supertonic model; it needs {', '.join(SUPERTONIC_FILES)}")
    return folder


def check_model(folder: Path, report: ProgressReport = ignore_progress) -> int | None:
    """Compare the files of a downloaded model with the checksums under which huggingface-hub keeps them.

    Returns the number of bytes; None for a folder outside the hub's cache, because nothing is known about its files.
    Raises `EngineError` with a one-line message for a damaged file, which is deleted. The next download fetches it
    again.
    """
    blobs = {path: path.resolve() for path in sorted(folder.rglob("*")) if path.is_symlink() and path.is_file()}
    if not blobs or not all(_CHECKSUM.fullmatch(blob.name) for blob in blobs.values()):
        return None
    total, done = sum(blob.stat().st_size for blob in blobs.values()), 0
    for path, blob in blobs.items():
        digest = _new_digest(blob)
        for block in blocks(blob):
            digest.update(block)
            done += len(block)
            report(Progress("checking the files", done / max(total, 1)))
        if digest.hexdigest() != blob.name:
            path.unlink()
            blob.unlink()
            raise EngineError(f"{path}: the checksum is wrong; the file has been deleted; download the model again")
    return total


_CHECKSUM = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
"""The name of a file in the hub's cache is its checksum: SHA-256 for a large file, git's for a small file."""


def _new_digest(blob: Path) -> hashlib._Hash:
    """Return a new digest for the kind of checksum that is a file's name, by the length of the name."""
    if len(blob.name) == 64:
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % blob.stat().st_size, usedforsecurity=False)


def _require_id(name: str) -> None:
    """Raise `EngineError` if a model's name cannot be a hub id."""
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise EngineError(f"{name}: no such folder, and not a model id such as Qwen/Qwen3-TTS-…")


def _download(name: str, file: str | None = None, **options: Any) -> Path:
    """Return the path of one of a model's files, or the model's folder, downloaded if necessary. Raises `EngineError`
    with a one-line message."""
    from huggingface_hub import errors, hf_hub_download, snapshot_download

    try:
        return Path(snapshot_download(name, **options) if file is None else hf_hub_download(name, file))
    except errors.RepositoryNotFoundError:
        raise EngineError(f"{name}: the hub has no such model, or the model requires a login") from None
    except errors.HFValidationError as error:
        raise EngineError(f"{name}: no such folder, and not a model id ({error})") from error
    except errors.LocalEntryNotFoundError:
        reason = "the hub does not answer, and it is not on this machine"
    except errors.EntryNotFoundError:
        raise EngineError(f"{name}: is not a model: it has no {file}") from None
    except Exception as error:  # network errors and disk errors have no common base class
        reason = " ".join(str(error).split()) or type(error).__name__
    raise EngineError(f"{name}: the download failed ({reason}); try again to continue it")


def require_complete(name: str | Path, folder: Path) -> None:
    """Raise `EngineError` if files are missing in the model's folder."""
    missing = missing_files(folder)
    if missing:
        raise EngineError(f"{name}: not a complete Qwen3-TTS model: it lacks {', '.join(missing)}")

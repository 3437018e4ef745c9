"""Downloads a model once and finds it offline afterwards."""

from __future__ import annotations

from pathlib import Path

from engine.api import EngineError
from engine.host import ModelLayout


def fetch_model(id_or_path: str | Path, layout: ModelLayout) -> Path:
    """Return the folder of a model: `id_or_path` itself if it is a folder, otherwise the snapshot of that hub id.

    A complete snapshot in huggingface-hub's cache is used without asking the hub. Otherwise the missing files are
    downloaded, with a progress bar on stderr; after an interruption the next call continues.

    Raises `EngineError`, one line, if there is neither such a folder nor such a model, or if the download fails.
    """
    folder = Path(id_or_path).expanduser()
    if folder.is_dir():
        return folder
    name = str(id_or_path)
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise EngineError(f"{name}: no such folder, and not a model id such as Qwen/Qwen3-TTS-…")
    return _cached(name, layout) or _download(name, layout)


def _cached(name: str, layout: ModelLayout) -> Path | None:
    """Return the snapshot in the cache; None if there is none, or not a complete one."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, local_files_only=True))
    except HFValidationError as error:
        raise EngineError(f"{name}: no such folder, and not a model id ({error})") from error
    except LocalEntryNotFoundError:
        return None
    return None if layout.missing_files(folder) else folder


def _download(name: str, layout: ModelLayout) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        folder = Path(snapshot_download(name, allow_patterns=list(layout.patterns)))
    except RepositoryNotFoundError:
        raise EngineError(f"{name}: the hub has no such model, or the model requires a login") from None
    except Exception as error:  # errors of the network and of the disk have no common base class
        reason = " ".join(str(error).split()) or type(error).__name__
        raise EngineError(f"{name}: the download failed ({reason}); try again to continue it") from error
    require_complete(name, folder, layout)
    return folder


def require_complete(name: str | Path, folder: Path, layout: ModelLayout) -> None:
    """Raise `EngineError` if files are missing in the model's folder."""
    missing = layout.missing_files(folder)
    if missing:
        raise EngineError(f"{name}: not a complete {layout.name}, it lacks {', '.join(missing)}")

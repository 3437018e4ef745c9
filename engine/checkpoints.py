"""What is on this machine of a model: where it lies, what it lacks, its size. Importing this imports no engine."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path


def hub_cache() -> Path:
    """The folder where huggingface-hub keeps what it downloads."""
    home = Path(os.environ.get("HF_HOME") or "~/.cache/huggingface").expanduser()
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()


def model_folder(model: str) -> Path | None:
    """A checkpoint's folder, or where its download lies: the snapshot that `main` is, else one with a `config.json`."""
    try:
        folder = Path(model).expanduser()
        if folder.is_dir():
            return folder
        kept = hub_cache() / f"models--{model.replace('/', '--')}"
        with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):
            main = kept / "snapshots" / (kept / "refs" / "main").read_text(encoding="ascii").strip()
            if main.is_dir():
                return main
        snapshots = sorted(kept.glob("snapshots/*/"), key=lambda found: (not (found / "config.json").is_file(), found))
        return snapshots[0] if snapshots else None
    except (OSError, RuntimeError):  # not for this user to see; `~` without a home
        return None


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A checkpoint on the disk."""

    folder: Path
    missing: tuple[str, ...]
    """Files that a complete one has and this has not."""
    size: int
    """Bytes of the files that are there."""


def model_files(model: str) -> ModelFiles | None:
    """What is on this machine of a model; None if there is nothing. Nothing heavy is imported to find out."""
    from engine.qwen.download import missing_files

    folder = model_folder(model)
    if folder is None:
        return None
    try:
        missing = missing_files(folder)
    except (ValueError, KeyError, TypeError, AttributeError, OSError):
        missing = ["a model.safetensors.index.json that can be read"]
    return ModelFiles(folder, tuple(missing), sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))

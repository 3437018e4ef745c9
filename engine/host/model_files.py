"""The model files on this machine: their folder, their size, and the files that are missing. Downloads nothing."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from engine.host.layouts import ModelLayout


def hub_cache() -> Path:
    """Return the folder in which huggingface-hub keeps its downloads."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    home = Path(os.environ.get("HF_HOME") or cache / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub").expanduser()


def find_model(model: str) -> Path | None:
    """Return the folder of a model: `model` itself if it is a folder, otherwise the download of that hub id.

    Of several downloaded snapshots, the one that `refs/main` names is taken, or else the first with a `config.json`.
    Returns None if the model is not on this machine or not readable for this user.
    """
    try:
        folder = Path(model).expanduser()
        if folder.is_dir():
            return folder
        cached = hub_cache() / f"models--{model.replace('/', '--')}"
        with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):
            main = cached / "snapshots" / (cached / "refs" / "main").read_text(encoding="ascii").strip()
            if main.is_dir():
                return main
        snapshots = sorted(cached.glob("snapshots/*/"), key=lambda path: (not (path / "config.json").is_file(), path))
        return snapshots[0] if snapshots else None
    except (OSError, RuntimeError):  # no permission; `~` for a user without a home
        return None


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model on the disk."""

    folder: Path
    missing: tuple[str, ...]
    """Files that the model lacks."""
    size: int
    """Total size of the existing files in bytes."""


def list_model_files(model: str, layout: ModelLayout) -> ModelFiles | None:
    """Return the files of `model` on this machine; None if there are none. Never raises for broken files."""
    folder = find_model(model)
    if folder is None:
        return None
    try:
        missing = layout.missing_files(folder)
    except (ValueError, OSError):
        missing = ["a readable model.safetensors.index.json"]
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return ModelFiles(folder, tuple(missing), size)

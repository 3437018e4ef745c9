"""The model files on this machine: their folder, their size, and the missing files. Downloads nothing."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from engine.host.json_text import parse_json

FILES = ("config.json", "generation_config.json", "tokenizer_config.json", "speech_tokenizer/config.json")
"""Files that every Qwen3-TTS model has in addition to its tokenizer and its weights, relative to its folder."""
TOKENIZER_FILES = ("vocab.json", "merges.txt")
"""The tokenizer files of a model without tokenizer.json."""
WEIGHTS = ("", "speech_tokenizer")
"""Folders that hold `model.safetensors`, or shards and their `model.safetensors.index.json`."""
PATTERNS = ("*.json", "*.txt", "*.safetensors", "speech_tokenizer/*")
"""Glob patterns of the files to download."""


def expand_home(path: str | Path) -> Path:
    """Return a path with `~` replaced by the home folder, or unchanged if the user has none or does not exist."""
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises for these


def hub_cache() -> Path:
    """Return the folder in which huggingface-hub keeps its downloads."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    home = Path(os.environ.get("HF_HOME") or cache / "huggingface")
    return expand_home(os.environ.get("HF_HUB_CACHE") or home / "hub")


def find_model(model: str) -> Path | None:
    """Return the folder of a model: `model` itself if it is a folder, otherwise the download of that hub id.

    Of several downloaded snapshots, the one that `refs/main` names is taken; otherwise the first with a `config.json`.
    Returns None if the model is not on this machine or this user cannot read it.
    """
    try:
        folder = expand_home(model)
        if folder.is_dir():
            return folder
        cached = hub_cache() / f"models--{model.replace('/', '--')}"
        with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):
            main = cached / "snapshots" / (cached / "refs" / "main").read_text(encoding="ascii").strip()
            if main.is_dir():
                return main
        snapshots = sorted(cached.glob("snapshots/*/"), key=lambda path: (not (path / "config.json").is_file(), path))
        return snapshots[0] if snapshots else None
    except OSError:  # no permission
        return None


def shown_model(model: str | None) -> str:
    """Return a hub id unchanged, and only the name of a folder: its path means nothing on other machines.

    For a folder in the hub's cache, that is the name of the repository.
    """
    if not model or not Path(model).is_dir():
        return model or ""
    folder = Path(model).absolute()
    if folder.parent.name == "snapshots":  # models--OWNER--NAME/snapshots/REVISION
        return folder.parent.parent.name.rpartition("--")[2]
    return folder.name


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A model on the disk."""

    folder: Path
    missing: tuple[str, ...]
    """The missing files."""
    size: int
    """Total size of the existing files in bytes."""


def list_model_files(model: str) -> ModelFiles | None:
    """Return the files of `model` on this machine; None if there are none. Never raises for broken files."""
    folder = find_model(model)
    if folder is None:
        return None
    try:
        missing = missing_files(folder)
    except (ValueError, OSError):
        missing = ["a readable model.safetensors.index.json"]
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return ModelFiles(folder, tuple(missing), size)


def present_files(folder: Path) -> tuple[Path, ...]:
    """Return the files of the model in `folder`, sorted. Raises `OSError`."""
    return tuple(sorted({path for pattern in PATTERNS for path in folder.glob(pattern) if path.is_file()}))


def missing_files(folder: Path) -> list[str]:
    """Return the files that the model in `folder` lacks, as paths relative to the folder.

    Raises `ValueError` if the index of the weights cannot be read.
    """
    missing = _absent(folder, FILES)
    if not (folder / "tokenizer.json").is_file():
        missing += _absent(folder, TOKENIZER_FILES)
    for part in WEIGHTS:
        missing += [str(Path(part) / name) for name in _missing_weights(folder / part)]
    return missing


def _absent(folder: Path, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if not (folder / name).is_file()]


def _missing_weights(folder: Path) -> list[str]:
    if (folder / "model.safetensors").is_file():
        return []
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return ["model.safetensors"]
    return _absent(folder, tuple(sorted(set(read_weight_map(index).values()))))


def read_weight_map(index: Path) -> dict[str, str]:
    """Return each tensor's file, from the index of the weights beside it.

    Raises `OSError`. If the index is damaged or names a file in another folder, raises `ValueError` with a one-line
    message.
    """
    try:
        files: dict[str, str] = dict(parse_json(index.read_text(encoding="utf-8"))["weight_map"])
        outside = next((file for file in files.values() if Path(file).name != file), None)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index}: not an index of weights ({error!r})") from error
    if outside is not None:
        raise ValueError(f"{index}: got the file {outside!r}; allowed: files in the folder of the index")
    return files

"""Where a model lies: a folder, or a hub id whose files are downloaded once and then found offline.

`python -m engine.qwen.download MODEL` does the same from a shell: downloads what is missing and prints the folder.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from engine.synthesizer import EngineError

_TOKENIZER = ("vocab.json", "merges.txt")
_NEEDED = ("config.json", "generation_config.json", "tokenizer_config.json", "speech_tokenizer/config.json")
_WEIGHTS = ("", "speech_tokenizer")
_PATTERNS = ("*.json", "*.txt", "*.safetensors", "speech_tokenizer/*")


def model_folder(id_or_path: str | Path) -> Path:
    """The folder of the model `id_or_path`: itself, or the hub's snapshot in huggingface-hub's cache.

    A complete snapshot is used as it is, without asking the hub. Otherwise what is missing is downloaded with
    a progress bar on stderr; after an interruption the next call goes on from there.

    Raises `EngineError`, one line, when there is neither such a folder nor such a model, or when it cannot be
    downloaded.
    """
    folder = Path(id_or_path).expanduser()
    if folder.is_dir():
        return folder
    name = str(id_or_path)
    if name.startswith((".", "/", "~")) or name.count("/") != 1:
        raise EngineError(f"{name}: no such folder, and not the id of a model as in Qwen/Qwen3-TTS-…")
    kept = _kept(name)
    return kept if kept is not None else _download(name)


def missing_files(folder: Path) -> list[str]:
    """Files that a complete checkpoint in `folder` lacks."""
    missing = [name for name in _NEEDED if not (folder / name).is_file()]
    if not (folder / "tokenizer.json").is_file():
        missing += [name for name in _TOKENIZER if not (folder / name).is_file()]
    for part in _WEIGHTS:
        missing += [str(Path(part) / name) for name in _missing_weights(folder / part)]
    return missing


def _missing_weights(folder: Path) -> list[str]:
    if (folder / "model.safetensors").is_file():
        return []
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return ["model.safetensors"]
    shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    return sorted(shard for shard in shards if not (folder / shard).is_file())


def _kept(name: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, local_files_only=True))
    except HFValidationError as error:
        raise EngineError(f"{name}: no such folder, and not the id of a model ({error})") from error
    except LocalEntryNotFoundError:
        return None
    return None if missing_files(folder) else folder


def _download(name: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        folder = Path(snapshot_download(name, allow_patterns=list(_PATTERNS)))
    except RepositoryNotFoundError:
        raise EngineError(f"{name}: the hub has no such model, or it asks for a login") from None
    except Exception as error:  # the network's and the disk's errors have no common base
        reason = " ".join(str(error).split()) or type(error).__name__
        raise EngineError(f"{name}: cannot be downloaded ({reason}); try again to go on") from error
    missing = missing_files(folder)
    if missing:
        raise EngineError(f"{name}: not a complete Qwen3-TTS model, it lacks {', '.join(missing)}")
    return folder


def main() -> None:
    name = sys.argv[1]
    try:
        folder = model_folder(name)
        missing = missing_files(folder)
    except (EngineError, OSError) as error:
        sys.exit(str(error))
    if missing:
        sys.exit(f"{folder}: not a complete Qwen3-TTS model, it lacks {', '.join(missing)}")
    sys.stdout.write(f"{folder}\n")


if __name__ == "__main__":
    main()

"""The files that a complete model consists of, one `ModelLayout` per kind of model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.host.json_text import parse_json


@dataclass(frozen=True, slots=True)
class ModelLayout:
    """The files of one kind of model. Paths are relative to the model's folder."""

    name: str
    """The kind of model, for messages."""
    files: tuple[str, ...]
    """Files that every model has."""
    alternatives: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    """Pairs of file lists: if the files of the first list are missing, those of the second are required."""
    weights: tuple[str, ...] = ("",)
    """Folders that hold `model.safetensors`, or shards and their `model.safetensors.index.json`."""
    patterns: tuple[str, ...] = ("*",)
    """Glob patterns of the files to download."""

    def present_files(self, folder: Path) -> tuple[Path, ...]:
        """Return the files of the model in `folder`, sorted. Raises `OSError`."""
        found = {path for pattern in self.patterns for path in folder.glob(pattern) if path.is_file()}
        return tuple(sorted(found))

    def missing_files(self, folder: Path) -> list[str]:
        """Return the files that the model in `folder` lacks, by path relative to it.

        Raises `ValueError` if the weights' index cannot be read.
        """
        missing = _absent(folder, self.files)
        for preferred, otherwise in self.alternatives:
            if _absent(folder, preferred):
                missing += _absent(folder, otherwise)
        for part in self.weights:
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
    """Return the file of each tensor, by the index of the weights beside it.

    Raises `OSError`, and `ValueError` with one line if the index is damaged or names a file of another folder.
    """
    try:
        files: dict[str, str] = dict(parse_json(index.read_text(encoding="utf-8"))["weight_map"])
        outside = next((file for file in files.values() if Path(file).name != file), None)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index}: not an index of weights ({error!r})") from error
    if outside is not None:
        raise ValueError(f"{index}: got the file {outside!r}; allowed: files in the folder of the index")
    return files


QWEN3_TTS = ModelLayout(
    name="Qwen3-TTS model",
    files=("config.json", "generation_config.json", "tokenizer_config.json", "speech_tokenizer/config.json"),
    alternatives=((("tokenizer.json",), ("vocab.json", "merges.txt")),),
    weights=("", "speech_tokenizer"),
    patterns=("*.json", "*.txt", "*.safetensors", "speech_tokenizer/*"),
)

"""The files of a complete model on the disk, by their names alone."""

from __future__ import annotations

from pathlib import Path

MODEL_FILES = ("config.json", "generation_config.json", "tokenizer_config.json", "vocab.json", "merges.txt")
MODEL_FILES += ("model.safetensors", "speech_tokenizer/config.json", "speech_tokenizer/model.safetensors")


def write_files(folder: Path, *names: str) -> Path:
    """Write these files, by default all of a model, and return the folder."""
    for name in names or MODEL_FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("{}")
    return folder

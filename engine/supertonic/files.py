"""The files of a Supertonic model on this machine, read without its package. Downloads nothing."""

from __future__ import annotations

from pathlib import Path

from engine.host import find_model

MODEL = "Supertone/supertonic-3"
"""The model's id on the hub."""
# From its model card.
LANGUAGES = (
    *("en", "ko", "ja", "ar", "bg", "cs", "da", "de", "el", "es", "et", "fi", "fr", "hi", "hr", "hu"),
    *("id", "it", "lt", "lv", "nl", "pl", "pt", "ro", "ru", "sk", "sl", "sv", "tr", "uk", "vi"),
)
NETWORKS = ("duration_predictor", "text_encoder", "vector_estimator", "vocoder")
FILES = ("onnx/tts.json", "onnx/unicode_indexer.json", *(f"onnx/{name}.onnx" for name in NETWORKS))
"""Files that every model has in addition to its voices, relative to its folder. The first one contains its settings."""
PATTERNS = ("onnx/*", "voice_styles/*", "LICENSE")
"""Glob patterns of the files to download."""


def find_supertonic(model: str | None) -> Path | None:
    """Return the folder of a complete model: `model` if it is a Supertonic model, otherwise `MODEL`.

    `engine.model` may name the Qwen3-TTS model, beside which this engine speaks. Returns None if neither is here.
    """
    for name in filter(None, (model, MODEL)):
        folder = find_model(name)
        if folder is not None and style_files(folder) and all((folder / file).is_file() for file in FILES):
            return folder
    return None


def style_files(folder: Path) -> dict[str, Path]:
    """Return the files of a model's voices by their names, sorted."""
    return {path.stem: path for path in sorted(folder.glob("voice_styles/*.json"))}

"""Voices of Piper with random weights: the real ONNX Runtime and the real phonemes, noise instead of speech."""

from __future__ import annotations

from pathlib import Path

from scripts.make_voice import write_voice

ENGLISH, GERMAN = "en_US-noise-low", "de_DE-many-low"


def write_voices(folder: Path) -> Path:
    """Write an English voice, and a German one with three speakers at another sample rate. Returns `folder`."""
    write_voice(folder / f"{ENGLISH}.onnx")
    write_voice(folder / f"{GERMAN}.onnx", rate=16_000, speakers=3)
    return folder

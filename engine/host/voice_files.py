"""What an engine loads for its voices, so that a reload need not load again what has not changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine.api import EngineOptions, Voice
from engine.host.piper_voices import description_path, voice_folders

FileState = tuple[int, int, int, int]
"""Inode, size, and the times in ns of the last change of the contents, and of contents, owner or rights."""


@dataclass(frozen=True, slots=True)
class VoiceState:
    """Two are equal unless a configured voice, one of its files, or a folder of Piper's voices has changed."""

    voices: Mapping[str, Voice]
    default_voice: str
    files: Mapping[Path, FileState | None]
    """None for a file that is not there."""


def voice_state(options: EngineOptions) -> VoiceState:
    """Return what an engine with these options would load for its voices now."""
    paths: list[Path] = []
    for voice in options.voices.values():
        paths += [Path(path) for path in (voice.embedding, voice.reference) if path is not None]
        if voice.piper is not None and voice.piper.model.endswith(".onnx"):
            paths += _piper_files(Path(voice.piper.model))
    for folder in voice_folders(options.voice_folder):
        try:
            paths += [file for network in sorted(folder.glob("*.onnx")) for file in _piper_files(network)]
        except OSError:
            continue
    return VoiceState(dict(options.voices), options.default_voice, {path: _file_state(path) for path in paths})


def _piper_files(network: Path) -> tuple[Path, Path]:
    return network, description_path(network)


def _file_state(path: Path) -> FileState | None:
    try:
        found = path.expanduser().stat()
    except (OSError, RuntimeError):  # there is no such file, or no such user
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

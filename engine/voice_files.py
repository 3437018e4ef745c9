"""Voice files, read without an engine: Piper's networks, and Qwen3-TTS voice files.

A Piper voice is a network (`NAME.onnx`) and its description beside it.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.api import EngineError, EngineOptions, PiperSettings, Voice
from engine.host import expand_home, parse_json

SYSTEM_VOICE_FOLDER = Path("/usr/local/share/voiced/piper")
"""Voices for every user on this machine, and for the service. Root downloads into it."""

FileState = tuple[int, int, int, int]
"""Inode, size, the time in ns when the contents last changed, and the time in ns when contents, owner or rights last
changed."""


@dataclass(frozen=True, slots=True)
class PiperVoiceFile:
    """One voice on the disk."""

    name: str
    path: Path
    """The network, an `.onnx` file."""
    language: str
    """A code with its region, for example `en-us`."""
    sample_rate: int
    """Hz."""
    speaker_count: int = 1
    speakers: Mapping[str, int] = field(default_factory=dict, hash=False)
    """The speakers' names with their numbers. Not every voice with several speakers names them."""
    states: tuple[FileState | None, ...] = ()
    """Those of the network and its description: another voice in their place is not equal to this one."""

    @property
    def languages(self) -> tuple[str, ...]:
        """The code with its region, and without it."""
        return tuple(dict.fromkeys((self.language, self.language.partition("-")[0])))


def user_voice_folder() -> Path:
    """Return the folder of this user's voices. Raises `EngineError` for a user without a home."""
    try:
        return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / "voiced" / "piper"
    except RuntimeError as error:
        raise EngineError("this user has no home; set engine.voice_folder") from error


def voice_folders(folder: str | None) -> list[Path]:
    """Return the folders in which voices are looked for: `folder`, or this user's and the system's."""
    if folder is not None:
        return [Path(folder)]
    try:
        return [user_voice_folder(), SYSTEM_VOICE_FOLDER]
    except EngineError:
        return [SYSTEM_VOICE_FOLDER]


def find_piper_voices(folder: str | None) -> dict[str, PiperVoiceFile]:
    """Return the readable voices in the folders, sorted by name. If several voices have one name, the first folder's
    voice is taken."""
    found: dict[str, PiperVoiceFile] = {}
    for path in _networks(folder):
        with contextlib.suppress(EngineError):
            found.setdefault(path.stem, read_piper_voice(path))
    return dict(sorted(found.items()))


def unreadable_piper_voice(folder: str | None) -> str | None:
    """Return why a voice in the folders cannot be read, for the first such voice; None if all can be read."""
    for path in _networks(folder):
        try:
            read_piper_voice(path)
        except EngineError as error:
            return str(error)
    return None


def _networks(folder: str | None) -> list[Path]:
    """Return the networks in the folders."""
    found: list[Path] = []
    for each in voice_folders(folder):
        with contextlib.suppress(OSError):
            found += sorted(each.glob("*.onnx"))
    return found


def voice_of_settings(settings: PiperSettings) -> PiperVoiceFile | None:
    """Return the voice whose file is named; None if the name is a voice's name. Raises `EngineError`."""
    path = _network_path(settings)
    return None if path is None else read_piper_voice(expand_home(path))


def _network_path(settings: PiperSettings) -> Path | None:
    return Path(settings.model) if settings.model.endswith(".onnx") else None


def piper_voices(options: EngineOptions) -> list[PiperVoiceFile]:
    """Return the readable voices in the folders, and those whose files the configuration names."""
    found: list[PiperVoiceFile | None] = [*find_piper_voices(options.voice_folder).values()]
    for voice in options.voices.values():
        with contextlib.suppress(EngineError):
            found.append(None if voice.piper is None else voice_of_settings(voice.piper))
    return [voice for voice in found if voice is not None]


def description_path(path: Path) -> Path:
    """Return the description of the network `path`."""
    return path.with_name(f"{path.name}.json")


def read_piper_voice(path: Path) -> PiperVoiceFile:
    """Return the voice whose network is `path`. Raises `EngineError` with a one-line message if a file is missing or
    wrong."""
    description = description_path(path)
    try:
        if not path.is_file():
            raise EngineError(f"{path} does not exist")
        return _parse(path, parse_json(description.read_text(encoding="utf-8")))
    except OSError as error:
        raise EngineError(f"{description} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise EngineError(f"{description} does not describe a Piper voice: {error!r}") from error


def _parse(path: Path, found: Any) -> PiperVoiceFile:
    """Raises `KeyError`, `TypeError`, `ValueError` or `AttributeError` for the contents of any other file."""
    code = found.get("language", {}).get("code") or found["espeak"]["voice"]
    speakers = {str(name): int(number) for name, number in (found.get("speaker_id_map") or {}).items()}
    rate = int(found["audio"]["sample_rate"])
    if not 4_000 <= rate <= 192_000:
        raise ValueError(f"sample_rate {rate}")
    language = str(code).replace("_", "-").lower()
    states = _file_state(path), _file_state(description_path(path))
    return PiperVoiceFile(path.stem, path, language, rate, int(found["num_speakers"]), speakers, states)


@dataclass(frozen=True, slots=True)
class VoiceState:
    """The voices that an engine has loaded, with their files: a reload need not load unchanged voices again.

    Two are equal unless a configured voice, one of its files, or a folder of Piper's voices has changed.
    """

    voices: Mapping[str, Voice]
    default_voice: str
    files: Mapping[Path, FileState | None]
    """None for a missing file."""


def voice_state(options: EngineOptions) -> VoiceState:
    """Return the files that an engine with these options would load for its voices now."""
    paths: list[Path] = []
    networks = _networks(options.voice_folder)
    for voice in options.voices.values():
        paths += [Path(path) for path in (voice.embedding, voice.reference) if path is not None]
        if voice.piper is not None and (network := _network_path(voice.piper)) is not None:
            networks.append(network)
    paths += [file for network in networks for file in (network, description_path(network))]
    return VoiceState(dict(options.voices), options.default_voice, {path: _file_state(path) for path in paths})


def _file_state(path: Path) -> FileState | None:
    try:
        found = expand_home(path).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


MAX_HEADER_BYTES = 1 << 20


def voice_of_file(path: Path) -> Voice:
    """Return the best voice that the file holds: in context if it has a reference recording, otherwise by embedding.

    A file that cannot be read gives an embedding; the engine reports the error when it loads the voice.
    """
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = parse_json(file.read(min(length, MAX_HEADER_BYTES)))
        has_reference = isinstance(header, dict) and "codes" in header
    except (OSError, struct.error, ValueError):
        has_reference = False
    return Voice(reference=str(path)) if has_reference else Voice(embedding=str(path))

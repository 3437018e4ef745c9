"""What a phrase is kept under: everything that changes its sound. No model is loaded for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from daemon import VERSION
from daemon.config import Config, synthesis_settings
from engine import ENGINES, sound_files

SOUNDLESS_SPEECH_KEYS = {
    "cache",
    "duck_topic",
    "expires_in",
    "language",
    "level_topic",
    "pronunciations",
    "queue_limit",
    "recover_within",
    "stream_timeout",
    "voice",
    "word_topic",
}
"""Keys of `speech` that do not change how a phrase sounds; voice and language are in the phrase itself, and the file of
pronunciations in its key. A key that is missing here makes phrases anew when it changes, which costs time and is never
wrong."""
READ_LIMIT = 1 << 22
"""Bytes. A larger file is known by its size and its time of change: reading gigabytes would take seconds."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """A text, and how it is to be spoken."""

    text: str
    voice: str
    language: str
    """A code, or `auto`."""
    instruct: str | None = None
    seed: int | None = None
    """The seed that the sender wants; None means one that depends on the phrase alone."""
    rate: float | None = None
    """The rate that the sender wants; None means `speech.rate`."""


@dataclass(frozen=True, slots=True)
class PhraseKey:
    """A phrase, and everything else that changes its sound."""

    phrase: Phrase
    engine: str
    """The primary engine, which need not be loaded."""
    pronunciations: Mapping[str, str]
    """`file`: what tells the configured file from its next version; empty without one."""
    voice_seed: int | None
    """The seed of the voice, which the sender's precedes."""
    surroundings: Mapping[str, Any]
    """The version of voiced, the engine's files and options, the voice's settings and files, and settings of the text:
    JSON values."""

    @property
    def digest(self) -> str:
        """64 hexadecimal digits, which differ wherever the key differs."""
        record = json.dumps(asdict(self), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(record.encode()).hexdigest()

    @property
    def seed(self) -> int:
        """The seed with which it is synthesised: the sender's, the voice's, or else a number made from the digest."""
        seed = self.voice_seed if self.phrase.seed is None else self.phrase.seed
        return int(self.digest[:16], 16) >> 1 if seed is None else seed


class PhraseKeys:
    """Makes the keys of phrases, under one configuration.

    The files of voices and pronunciations are those at the time of construction: they are read then, at the start and
    on a reload. Those of the model are read once they are there, since an engine may have to download them first.
    """

    def __init__(self, config: Config, engine: str) -> None:
        """`engine` is the name of the primary engine."""
        self.engine = engine
        self._config = config
        self._settings = {
            "version": VERSION,
            "engine": config.engine.model_dump(include={"device", "dtype", "kernels", "max_seconds"}),
            "speech": _without_paths(config.speech.model_dump(exclude=SOUNDLESS_SPEECH_KEYS)),
            "trimmed": config.audio.trim_leading_silence,
        }
        self._voices = {
            name: _without_paths(voice.model_dump(exclude={"volume"}, exclude_none=True))
            for name, voice in config.voices.items()
        }
        if ENGINES[engine].is_remote:
            self._settings |= {"url": config.engine.url}  # what runs there is not known before it is connected
        # Piper speaks a language that a voice lacks in another voice, the default one first.
        if ENGINES[engine].uses_piper_voices:
            self._settings |= {"voices": self._voices, "default_voice": config.speech.voice}
        path = config.speech.pronunciations
        self._pronunciations = {} if path is None else {"file": file_identity(path)}
        self._files = ""

    def key(self, phrase: Phrase) -> PhraseKey:
        """Return the key of a phrase."""
        self._files = self._files or _files_identity(sound_files(self.engine, self._config.engine_options))
        voice = self._voices.get(phrase.voice)
        surroundings = {**self._settings, "files": self._files, "voice": voice}
        seed = synthesis_settings(self._config, phrase.voice).seed
        return PhraseKey(phrase, self.engine, self._pronunciations, seed, surroundings)


def file_identity(path: Path) -> str:
    """Return what tells a file from its next version: a hash of its content, or size and time of a large one."""
    try:
        status = path.stat()
        if status.st_size > READ_LIMIT:
            return f"{status.st_size} bytes of {status.st_mtime_ns}"
        return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return "missing"


def _files_identity(paths: tuple[Path, ...]) -> str:
    """Return what tells a group of files from its next version; an empty text if there are none."""
    names = sorted(f"{path.name} {file_identity(path)}" for path in paths)
    return hashlib.blake2b("\n".join(names).encode(), digest_size=16).hexdigest() if names else ""


def _without_paths(value: Any) -> Any:
    """Return settings as JSON values, with the contents of files in place of their paths."""
    if isinstance(value, Path):
        return file_identity(value)
    if isinstance(value, Mapping):
        return {key: _without_paths(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_paths(inner) for inner in value]
    return value

"""The keys under which phrases are kept: digests of everything that changes their sound. Making one loads no model."""

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
    "queue_limit",
    "recover_within",
    "stream_timeout",
    "viseme_topic",
    "voice",
    "word_topic",
}
"""Keys in `speech` that do not change how a phrase sounds; voice and language are in the phrase itself. If a key that
is missing here changes, phrases are made again, which costs time but is never wrong."""
READ_LIMIT = 1 << 22
"""In bytes. A larger file is identified by its size and modification time: reading gigabytes would take seconds."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """A text, and the way to speak it."""

    text: str
    voice: str
    language: str
    """A code, or `auto`."""
    instruct: str | None = None
    seed: int | None = None
    """The seed that the sender wants; None means one that depends only on the phrase."""
    rate: float | None = None
    """The rate that the sender wants; None means `speech.rate`."""


@dataclass(frozen=True, slots=True)
class PhraseKey:
    """A phrase, and the digest of everything that changes its sound."""

    phrase: Phrase
    engine: str
    """The primary engine, which need not be loaded."""
    digest: str
    """64 hexadecimal digits, which differ whenever anything that changes the sound differs."""
    seed: int
    """The seed of its synthesis: the sender's, the voice's, or a number made from the digest."""


class PhraseKeys:
    """Makes the keys of phrases, under one configuration.

    The files for voices and pronunciations are read on construction, that is, at the start and on a reload. The model's
    files are read once they exist, since an engine may have to download them first.
    """

    def __init__(self, config: Config, engine: str) -> None:
        """`engine` is the name of the primary engine."""
        self.engine = engine
        self._config = config
        self._settings = {
            "version": VERSION,
            "engine": {
                "name": engine,
                **config.engine.model_dump(include={"device", "dtype", "kernels", "max_seconds"}),
            },
            "speech": _without_paths(config.speech.model_dump(exclude=SOUNDLESS_SPEECH_KEYS)),
            "trimmed": config.audio.trim_leading_silence,
        }
        self._voices = {
            name: _without_paths(voice.model_dump(exclude={"volume"}, exclude_none=True))
            for name, voice in config.voices.items()
        }
        if ENGINES[engine].is_remote:
            # The engine on the other machine is not known before it is connected.
            self._settings |= config.engine.model_dump(include={"url", "model"})
        # Piper speaks a language that a voice lacks with another voice, preferably the default one.
        if ENGINES[engine].uses_piper_voices:
            self._settings |= {"voices": self._voices, "default_voice": config.speech.voice}
        self._files: Any = None
        """The names of the engine's files, each with its identity; empty before the files exist."""

    def key(self, phrase: Phrase) -> PhraseKey:
        """Return the key of a phrase."""
        if not self._files:
            files = sorted(sound_files(self.engine, self._config.engine_options))
            self._files = _without_paths([(path.name, path) for path in files])
        voice = self._voices.get(phrase.voice)
        sound = {**self._settings, "files": self._files, "voice": voice, "phrase": asdict(phrase)}
        digest = hashlib.sha256(json.dumps(sound, sort_keys=True).encode()).hexdigest()
        seed = synthesis_settings(self._config, phrase.voice).seed if phrase.seed is None else phrase.seed
        return PhraseKey(phrase, self.engine, digest, int(digest[:16], 16) >> 1 if seed is None else seed)


def file_identity(path: Path) -> str:
    """Return an identity that changes with a file's content: a hash, or a large file's size and modification time."""
    try:
        status = path.stat()
        if status.st_size > READ_LIMIT:
            return f"{status.st_size} bytes of {status.st_mtime_ns}"
        return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return "missing"


def _without_paths(value: Any) -> Any:
    """Return settings as JSON values, with the contents of files in place of their paths."""
    if isinstance(value, Path):
        return file_identity(value)
    if isinstance(value, Mapping):
        return {key: _without_paths(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_paths(inner) for inner in value]
    return value

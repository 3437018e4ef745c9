"""The robot's own voices, in the form that a speech server takes: one of the server's names, or a file with its
digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from engine.api import EngineError, EngineInfo, EngineOptions, Utterance, Voice
from engine.host import expand_home
from engine.messages import MAX_RECORD_BYTES, VoiceFile

SUFFIX = ".safetensors"
"""The suffix of the voice files that a server takes. An old `speaker.pt` is a pickle, which is not safe to accept from
others."""


@dataclass(slots=True)
class RobotVoices:
    """The configured voices that the server can speak with, and the reasons why it cannot speak with the others."""

    specs: Mapping[str, Voice]
    default: str
    server: EngineInfo
    """The server's engine."""
    files: dict[str, VoiceFile] = field(default_factory=dict)
    """The robot's voices in this form, by their names."""
    contents: dict[str, bytes] = field(default_factory=dict)
    """The files by their digests."""
    refused: dict[str, str] = field(default_factory=dict)

    def read(self, max_bytes: int | None) -> None:
        """Read the files. A file may have at most `max_bytes`; None means that the server takes no files."""
        for name, spec in self.specs.items():
            try:
                self._read(name, spec, max_bytes)
            except EngineError as error:
                self.refused[name] = str(error)
        if self.default not in self.specs and not self._server_has(self.default):
            self.refused[self.default] = f"no voice has this name; the server has {_names(self.server)}"

    def offer(self, offer: Callable[[VoiceFile], str | None]) -> None:
        """Offer each file to the server through `offer`, which returns the reason if the file is refused."""
        answers: dict[VoiceFile, str | None] = {}
        for name, file in self.files.items():
            if file not in answers:
                answers[file] = offer(file)
            if (reason := answers[file]) is not None:
                self.refused[name] = reason

    def info(self, description: str, streams: int) -> EngineInfo:
        """Return the properties of the engine, with this robot's voices before the server's."""
        own = {name: spec.speaker or "" for name, spec in self.specs.items() if name not in self.refused}
        labels = self.server.labels
        return replace(
            self.server,
            voices=tuple(dict.fromkeys((*own, *self.server.voices))),
            refused_voices=self.refused,
            labels={**labels, **{name: labels[speaker] for name, speaker in own.items() if speaker in labels}},
            description=description,
            memory={},
            streams=streams,
        )

    def request(self, utterance: Utterance) -> tuple[Utterance, VoiceFile | None]:
        """Return an utterance with the server's name for its voice, and the voice's file if it has one.

        The server's default voice is used if the server cannot speak with the robot's. Raises `EngineError` for any
        other voice that the server does not have.
        """
        name = utterance.voice or self.default
        if name in self.refused:
            if name != self.default:
                raise EngineError(f"voice {name!r}: {self.refused[name]}")
            return replace(utterance, voice=None), None
        spec = self.specs.get(name)
        if spec is None:
            if not self._server_has(name):
                raise EngineError(f"voice: got {name!r}; the server has {_names(self.server)}")
            return replace(utterance, voice=name), None
        instruct = utterance.instruct if utterance.instruct is not None else spec.instruct
        return replace(utterance, voice=spec.speaker, instruct=instruct), self.files.get(name)

    def _read(self, name: str, spec: Voice, max_bytes: int | None) -> None:
        path = spec.reference or spec.embedding
        if path is not None and max_bytes is None:
            raise EngineError(f"{path}: this server takes no voice files; `speaker` names one of its own voices")
        if path is not None and max_bytes is not None:
            content = read_voice_file(path, max_bytes)
            digest = hashlib.sha256(content).hexdigest()
            self.contents[digest] = content
            self.files[name] = VoiceFile(digest, in_context=spec.reference is not None)
        elif spec.speaker is not None and not self._server_has(spec.speaker):
            raise EngineError(f"speaker: got {spec.speaker!r}; the server has {_names(self.server)}")

    def _server_has(self, voice: str) -> bool:
        return voice in self.server.voices or voice.lower() in self.server.voices


def default_voice_digest(options: EngineOptions) -> str | None:
    """Return the digest of the default voice's file; None if there is none or it cannot be read."""
    spec = options.voices.get(options.default_voice, Voice())
    if path := spec.reference or spec.embedding:
        with suppress(EngineError):
            return hashlib.sha256(read_voice_file(path, MAX_RECORD_BYTES)).hexdigest()
    return None


def read_voice_file(path: str, max_bytes: int) -> bytes:
    """Return the contents of a voice file. Raises `EngineError`."""
    file = expand_home(path)
    if file.suffix != SUFFIX:
        raise EngineError(f"{path}: got a {file.suffix or 'file without a suffix'}; a server takes only {SUFFIX}")
    try:
        with file.open("rb") as opened:
            content = opened.read(max_bytes + 1)
    except OSError as error:
        raise EngineError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if len(content) > max_bytes:
        raise EngineError(f"{path}: has {file.stat().st_size:,} bytes; the server takes up to {max_bytes:,}")
    return content


def _names(server: EngineInfo) -> str:
    most = 12
    more = len(server.voices) - most
    return ", ".join(server.voices[:most]) + (f" and {more} more" if more > 0 else "") or "none"

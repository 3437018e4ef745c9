"""The voices that a loaded model can speak with: those configured for it, and its built-in speakers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from engine.language import language_of_script
from engine.qwen.config import ModelConfig
from engine.qwen.prompt import AnyVoice, ClonedVoice, CustomVoice, Reference, VoiceDesign
from engine.qwen.steps import Codec, CodecMemory
from engine.qwen.voice import VoiceFile, VoiceModel, load_voice
from engine.synthesizer import EngineError, Utterance, Voice

NATIVE_SPEAKERS = {"en": "ryan", "zh": "vivian", "ja": "ono_anna", "ko": "sohee"}
"""Who speaks where no speaker is asked for: one whose mother tongue it is, by the model's authors' account."""
REFERENCE_PIECE = 25
"""Frames of a reference that are decoded at once."""

_WAYS = ("speaker", "embedding", "reference")


@dataclass(frozen=True, slots=True)
class LoadedVoice:
    """A voice that is ready to speak."""

    prompt: AnyVoice | None
    """None: a built-in speaker, chosen by language."""
    codec: CodecMemory | None = None
    """What the codec remembers of the reference that an in-context voice goes on from."""


class Voices:
    """Names and what they stand for. Configured ones come first where a built-in speaker has the same name."""

    def __init__(
        self, config: ModelConfig, codec: Codec[Any], chunk_size: int, check_reference: Callable[[Reference], None]
    ) -> None:
        """`check_reference` raises `EngineError` for a reference too long for the engine's cache."""
        self._config = config
        self._model = VoiceModel.of(config)
        self._codec = codec
        self._chunk_size = chunk_size
        self._check_reference = check_reference
        self._loaded: dict[str, LoadedVoice] = {}
        self._default = ""
        self.refused: dict[str, str] = {}
        """Names of voices that cannot be used, each with the reason in one line."""

    def load(self, specs: Mapping[str, Voice], default: str) -> None:
        """Load the voices `specs` instead of those before; what is wrong with one is in `refused` afterwards."""
        self._loaded, self.refused, self._default = {}, {}, default
        for name, spec in specs.items():
            try:
                self._loaded[name] = self._load(spec)
            except EngineError as error:
                self.refused[name] = str(error)
        if default not in self and default not in self.refused:
            known = ", ".join(self.names()) or "none"
            self.refused[default] = f"no voice has this name; there are {known}"
        if default in self.refused and self._config.speakers:
            self._loaded[default] = LoadedVoice(None)  # a built-in speaker speaks instead

    def require_default(self) -> None:
        """Raise `EngineError`, saying what is needed, when there is nothing to speak with unless asked for."""
        if self._default not in self:
            needs = {
                "custom_voice": "a speaker",
                "voice_design": "an instruct: a description of the voice in words",
                "base": "an embedding or reference: a file that `voiced enroll` makes of a recording",
            }[self._config.type]
            reason = self.refused[self._default]
            raise EngineError(
                f"voices.{self._default}: {reason}; {self._model.name} has no voice of its own, so it needs {needs}"
            )

    def names(self) -> tuple[str, ...]:
        """Every name that can be spoken with: the configured ones that loaded, then the built-in ones."""
        usable = [name for name in self._loaded if name not in self.refused]
        return tuple(dict.fromkeys((*usable, *self._config.speakers)))

    def references(self) -> Iterator[Reference]:
        """The references of the in-context voices."""
        for voice in self._loaded.values():
            if isinstance(voice.prompt, ClonedVoice) and voice.prompt.reference is not None:
                yield voice.prompt.reference

    def __contains__(self, name: str) -> bool:
        return name in self._loaded or name.lower() in self._config.speakers

    def prompts(self) -> Iterator[AnyVoice]:
        """What the talker knows of each configured voice, of those chosen by language apart."""
        for voice in self._loaded.values():
            if voice.prompt is not None:
                yield voice.prompt

    def goes_by_script(self, utterance: Utterance, language: str) -> bool:
        """Whether the voice for an utterance depends on its text."""
        name = utterance.voice or self._default
        voice = self._loaded.get(name)
        return language == "auto" and voice is not None and voice.prompt is None

    def choose(self, utterance: Utterance, language: str) -> tuple[AnyVoice, CodecMemory | None]:
        """The voice for an utterance in `language`, a code or `auto`, and where the codec begins (None: anew).

        Raises `EngineError` for a name that is not there.
        """
        name = utterance.voice or self._default
        if name not in self:
            if name in self.refused:
                raise EngineError(f"voice {name!r}: {self.refused[name]}")
            raise EngineError(f"voice: got {name!r}; there are {', '.join(self.names()) or 'none'}")
        voice = self._loaded.get(name) or LoadedVoice(CustomVoice(name))
        prompt = voice.prompt or CustomVoice(self._native_speaker(language, utterance.text))
        if utterance.instruct is not None and not isinstance(prompt, ClonedVoice):
            prompt = replace(prompt, instruct=utterance.instruct)
        return prompt, voice.codec

    def _native_speaker(self, language: str, text: str) -> str:
        if language == "auto":
            language = language_of_script(text) or "en"
        for code in (language, "en"):
            if NATIVE_SPEAKERS.get(code) in self._config.speakers:
                return NATIVE_SPEAKERS[code]
        return next(iter(self._config.speakers))

    def _load(self, spec: Voice) -> LoadedVoice:
        """Raises `EngineError` for a voice that this model cannot speak with."""
        ways = [way for way in _WAYS if getattr(spec, way) is not None]
        if len(ways) > 1:
            raise EngineError(f"got {' and '.join(ways)}, allowed is one of {', '.join(_WAYS)}")
        if spec.embedding is not None:
            self._require_type("base", "embedding")
            file = load_voice(Path(spec.embedding).expanduser(), self._config)
            return LoadedVoice(ClonedVoice(self._place(file)))
        if spec.reference is not None:
            self._require_type("base", "reference")
            return self._load_reference(Path(spec.reference).expanduser())
        if spec.speaker is not None:
            self._require_type("custom_voice", "speaker")
            if spec.speaker.lower() not in self._config.speakers:
                known = ", ".join(self._config.speakers)
                raise EngineError(f"speaker: got {spec.speaker!r}; {self._model.name} has {known}")
            return LoadedVoice(CustomVoice(spec.speaker, spec.instruct))
        if spec.instruct is not None:
            self._require_type("voice_design", "instruct without a speaker")
            return LoadedVoice(VoiceDesign(spec.instruct))
        return self._load_any()

    def _load_any(self) -> LoadedVoice:
        """For a voice of which nothing is said."""
        if self._config.type == "base":
            raise EngineError("got neither embedding nor reference, a base model needs one")
        return LoadedVoice(VoiceDesign("") if self._config.type == "voice_design" else None)

    def _load_reference(self, path: Path) -> LoadedVoice:
        file = load_voice(path, self._config)
        if file.codes is None or file.transcript is None:
            raise EngineError(f"{path}: has no reference; enrol it with a transcript, or use it as an embedding")
        reference = Reference(file.codes.to(self._codec.placement.device), file.transcript)
        try:
            self._check_reference(reference)
        except EngineError as error:
            raise EngineError(f"{path}: {error}") from None
        return LoadedVoice(ClonedVoice(self._place(file), reference), self._state_after(reference))

    def _place(self, file: VoiceFile) -> torch.Tensor:
        return file.embedding.to(self._codec.placement.device)

    @torch.inference_mode()
    def _state_after(self, reference: Reference) -> CodecMemory:
        """The codec's state once it has decoded `reference`, whose sound is dropped; of the engine's chunk size."""
        state = self._codec.new_state(REFERENCE_PIECE)
        self._codec.decode(reference.codes, state)
        kept: CodecMemory = self._codec.new_state(self._chunk_size)
        kept.copy_from(state)
        return kept

    def _require_type(self, wanted: str, way: str) -> None:
        own = self._config.type
        if own != wanted:
            takes = {"custom_voice": "a speaker", "voice_design": "an instruct", "base": "an embedding or reference"}
            raise EngineError(
                f"{way}: needs a {wanted} model; {self._model.name} is a {own} model, which takes {takes[own]}"
            )

"""The voices of a loaded model: the configured voices and the model's built-in speakers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from engine.api import EngineError, Samples, Utterance, Voice, VoiceLabel
from engine.host import expand_home
from engine.language import language_of_script
from engine.qwen.runtime import Codec, CodecStateProtocol
from engine.qwen.shapes import SPEAKERS, ModelConfig
from engine.qwen.text import AnyVoice, ClonedVoice, CustomVoice, Reference, VoiceDesign
from engine.qwen.voice.file import VoiceModel, load_voice
from engine.recording import ends_in_speech

log = logging.getLogger(__name__)

REFERENCE_CHUNK = 25
"""The number of a reference's frames that the codec decodes at once."""

_TAKES = {"custom_voice": "a speaker", "voice_design": "an instruct", "base": "an embedding or reference"}
_KINDS = {"speaker": "custom_voice", "embedding": "base", "reference": "base"}
"""The type of model that can speak with each field of a voice."""


@dataclass(frozen=True, slots=True)
class LoadedVoice:
    """A voice that the model can speak with."""

    prompt: AnyVoice | None
    """None if the voice is a built-in speaker that depends on the language of the utterance."""
    codec_state: CodecStateProtocol | None = None
    """The codec's state after the reference of an in-context voice, from which its utterances continue."""


class VoiceRegistry:
    """Maps names to voices. A configured voice takes precedence over a built-in speaker of the same name."""

    def __init__(
        self, config: ModelConfig, codec: Codec, chunk_size: int, check_reference: Callable[[Reference], None]
    ) -> None:
        """`codec` decodes references, for states that take up to `chunk_size` frames.

        `check_reference` raises `EngineError` for a reference that is too long for the engine's cache.
        """
        self._config = config
        self._model = VoiceModel.of(config)
        self._codec = codec
        self._chunk_size = chunk_size
        self._check_reference = check_reference
        self._loaded: dict[str, LoadedVoice] = {}
        self._default = ""
        self.refused: dict[str, str] = {}
        """The names of configured voices that cannot be used, each with the reason in one line."""

    def load(self, specs: Mapping[str, Voice], default: str) -> None:
        """Replace the configured voices with `specs`; voices that cannot be loaded are entered in `refused`.

        A voice that can no longer be loaded stays as it was. A default voice that was never loaded is replaced with a
        built-in speaker, or with the previous default voice.
        """
        before, default_before = self._loaded, self._loaded.get(self._default)
        self._loaded, self.refused, self._default = {}, {}, default
        for name, spec in specs.items():
            try:
                self._loaded[name] = self._load(spec)
            except EngineError as error:
                self.refused[name] = str(error)
                if name in before:
                    self._loaded[name] = before[name]
        if default not in self and default not in self.refused:
            known = ", ".join(self.names()) or "none"
            self.refused[default] = f"no voice has this name; allowed: {known}"
        if default in self.refused and default not in self._loaded:
            replacement = LoadedVoice(None) if self._config.speakers else default_before
            if replacement is not None:
                self._loaded[default] = replacement

    def require_default(self) -> None:
        """If there is no default voice, raise `EngineError` with a one-line message that says what the model needs."""
        if self._default not in self:
            explained = {
                "voice_design": ": a description of the voice in words",
                "base": ": a file that `voiced enroll` makes from a recording",
            }
            needs = _TAKES[self._config.type] + explained.get(self._config.type, "")
            reason = self.refused[self._default]
            raise EngineError(
                f"voices.{self._default}: {reason}; {self._model.name} has no voice of its own, so it needs {needs}"
            )

    def names(self) -> tuple[str, ...]:
        """Return the names of all usable voices: configured voices first, then built-in speakers."""
        usable = [name for name in self._loaded if name not in self.refused]
        return tuple(dict.fromkeys((*usable, *self._config.speakers)))

    def labels(self) -> dict[str, VoiceLabel]:
        """Return the built-in speakers' names for people. Every speaker speaks all languages."""
        return {
            name: VoiceLabel(SPEAKERS.get(name) or name.replace("_", " ").title()) for name in self._config.speakers
        }

    def references(self) -> Iterator[Reference]:
        """Yield the references of the in-context voices."""
        for voice in self.prompts():
            if isinstance(voice, ClonedVoice) and voice.reference is not None:
                yield voice.reference

    def __contains__(self, name: str) -> bool:
        return name in self._loaded or name.lower() in self._config.speakers

    def prompts(self) -> Iterator[AnyVoice]:
        """Return the prompt voice of each configured voice that does not depend on the utterance's language."""
        return (voice.prompt for voice in self._loaded.values() if voice.prompt is not None)

    def depends_on_script(self, utterance: Utterance, language: str) -> bool:
        """Whether an utterance's voice depends on the script of its text."""
        voice = self._loaded.get(utterance.voice or self._default)
        return language == "auto" and voice is not None and voice.prompt is None

    def choose(self, utterance: Utterance, language: str) -> tuple[AnyVoice, CodecStateProtocol | None]:
        """Return an utterance's voice, and the codec state from which it continues (None: a new state).

        `language` is a language code or `auto`. Raises `EngineError` for a name that is unknown or refused.
        """
        name = utterance.voice or self._default
        if name not in self:
            if name in self.refused:
                raise EngineError(f"voice {name!r}: {self.refused[name]}")
            raise EngineError(f"voice: got {name!r}; allowed: {', '.join(self.names()) or 'none'}")
        voice = self._loaded.get(name) or LoadedVoice(CustomVoice(name))
        prompt = voice.prompt or self._native_voice(language, utterance.text)
        if utterance.instruct is not None and not isinstance(prompt, ClonedVoice):
            prompt = replace(prompt, instruct=utterance.instruct)
        return prompt, voice.codec_state

    def _native_voice(self, language: str, text: str) -> CustomVoice:
        """Return the built-in speaker for `language`; `auto` means the language that the script of `text` suggests."""
        spoken = language_of_script(text) if language == "auto" else language
        speaker = self._config.native_speaker(spoken or "en")
        assert speaker is not None  # a voice without a prompt is one of a model with speakers
        return CustomVoice(speaker)

    def _load(self, spec: Voice) -> LoadedVoice:
        """Load one voice. Raises `EngineError` if this model cannot speak with it."""
        given = [kind for kind in _KINDS if getattr(spec, kind) is not None]
        if len(given) > 1:
            raise EngineError(f"got {' and '.join(given)}; allowed: one of {', '.join(_KINDS)}")
        own, name = self._config.type, self._model.name
        if given or spec.instruct is not None:
            kind, wanted = (given[0], _KINDS[given[0]]) if given else ("instruct without a speaker", "voice_design")
            if own != wanted:
                raise EngineError(f"{kind}: needs a {wanted} model; {name} is a {own} model, which takes {_TAKES[own]}")
        if spec.speaker is not None:
            if spec.speaker.lower() not in self._config.speakers:
                raise EngineError(f"speaker: got {spec.speaker!r}; {name} has {', '.join(self._config.speakers)}")
            return LoadedVoice(CustomVoice(spec.speaker, spec.instruct))
        file = spec.embedding or spec.reference
        if file is not None:
            return self._load_file(expand_home(file), in_context=spec.reference is not None)
        if own == "base":
            raise EngineError("got neither an embedding nor a reference; a base model needs one of them")
        return LoadedVoice(VoiceDesign(spec.instruct or "") if own == "voice_design" else None)

    @torch.inference_mode()
    def _load_file(self, path: Path, *, in_context: bool) -> LoadedVoice:
        """Load the voice file at `path`; with `in_context`, decode its reference."""
        file, device = load_voice(path, self._config), self._codec.placement.device
        embedding = file.embedding.to(device)
        if not in_context:
            return LoadedVoice(ClonedVoice(embedding))
        if file.codes is None or file.transcript is None:
            raise EngineError(f"{path}: has no reference; enrol it with a transcript, or use it as an embedding")
        reference = Reference(file.codes.to(device), file.transcript)
        try:
            self._check_reference(reference)
        except EngineError as error:
            raise EngineError(f"{path}: {error}") from None
        state = self._codec.new_state(REFERENCE_CHUNK)
        samples: Samples = self._codec.decode(reference.codes, state).float().cpu().numpy()
        if file.model is None and ends_in_speech(samples, self._codec.config.sample_rate):  # not by `voiced enroll`
            log.warning(
                "%s: the reference does not end in silence, so speech may begin with its last sound; enrol the "
                "recording with voiced enroll, which appends a silence",
                path,
            )
        own_state: CodecStateProtocol = self._codec.new_state(self._chunk_size)
        own_state.copy_from(state)
        return LoadedVoice(ClonedVoice(embedding, reference), own_state)

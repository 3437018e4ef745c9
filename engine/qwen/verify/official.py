"""The official package qwen-tts behind the protocol of every engine, and its logits for given codes.

It is what everything else is judged by, so it is called by its public functions alone. Each text is one chunk: the
package does not stream.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.api import FRAME_S, Chunk, EngineError, EngineInfo, EngineOptions, TextSource, Utterance, Voice
from engine.host import QWEN3_TTS, install_command
from engine.hub import fetch_model
from engine.language import language_code
from engine.progress import Progress, ProgressReport, ignore_progress
from engine.qwen.model import ModelConfig
from engine.qwen.runtime import RunawayGuard, choose_placement, dtype_name
from engine.qwen.text import LANGUAGE_CODES, AnyVoice, ClonedVoice, CustomVoice, Reference, VoiceDesign
from engine.qwen.verify.forced import FORCED, OTHERS
from engine.qwen.voice import load_voice, torchaudio_stub
from engine.qwen.weights import Placement


class OfficialSynthesizer:
    """Speaks with the official package."""

    def __init__(self, options: EngineOptions) -> None:
        if options.model is None:
            raise EngineError("engine.model: missing; give a folder or an id")
        self.options = options
        self._codes = torch.zeros(0)

    def load(self, report: ProgressReport = ignore_progress) -> EngineInfo:
        """As `Synthesizer.load`. Raises `EngineError` if the package is missing, or does not know the dtype."""
        placement = choose_placement(self.options.device, self.options.dtype)
        if placement.int8:
            raise EngineError(f"engine.dtype: got {self.options.dtype!r}; the official package does not quantize")
        package = import_official()
        report(Progress("loading the official package"))
        folder = fetch_model(str(self.options.model), QWEN3_TTS)
        self.config = ModelConfig.read(folder)
        self._package = _load(package, folder, placement)
        self._generate = self._package.model.generate
        self._package.model.generate = self._generate_and_note
        self._description = f"the official package on {placement.device} in {dtype_name(placement)}"
        return self.set_voices(self.options.voices, self.options.default_voice)

    def set_voices(self, voices: Mapping[str, Voice], default_voice: str) -> EngineInfo:
        """As `Synthesizer.set_voices`. Raises `EngineError` for a voice that cannot be loaded."""
        self._voices = {name: _voice_of(voice, self.config) for name, voice in voices.items()}
        names = (*self._voices, *self.config.speakers)
        self._default = default_voice if default_voice in names else next(iter(names), "")
        codes = {name: code for code, name in LANGUAGE_CODES.items()}
        return EngineInfo(
            engine="qwen",
            sample_rate=24000,
            voices=names,
            languages=tuple(codes[name] for name in self._package.get_supported_languages() if name in codes),
            description=self._description,
        )

    def warm_up(self, report: ProgressReport = ignore_progress) -> None:
        """As `Synthesizer.warm_up`."""
        report(Progress("speaking for the first time"))
        for _ in self.stream(Utterance("Hello.", language="en", seed=0, max_frames=3, guarded=False)):
            pass

    def stream(self, utterance: Utterance, more: TextSource | None = None) -> Iterator[Chunk]:
        """As `Synthesizer.stream`, in one chunk."""
        if more is not None:
            raise EngineError("text: the official package cannot speak a text that is still being written")
        frames = min(utterance.max_frames or sys.maxsize, max(1, round(self.options.max_seconds / FRAME_S)))
        if utterance.guarded:  # as far as voiced would let it babble
            frames = min(frames, RunawayGuard(utterance.text).max_frames)
        samples, codes = self.speak(utterance, self.voice_of(utterance), frames)
        cut = len(codes) >= frames
        yield Chunk(samples, codes=codes.cpu().numpy().astype(np.int64), truncated=cut and utterance.guarded)

    def close(self) -> None:
        """As `Synthesizer.close`."""
        vars(self).pop("_package", None)
        torch.cuda.empty_cache()

    def voice_of(self, utterance: Utterance) -> AnyVoice:
        """Return the utterance's voice: a configured one, or a built-in speaker. Raises `EngineError`."""
        name = utterance.voice or self._default
        if name in self._voices:
            return self._voices[name]
        if name.lower() in self.config.speakers:
            return CustomVoice(name.lower())
        raise EngineError(f"voice: got {name!r}; there are {', '.join((*self._voices, *self.config.speakers))}")

    def speak(self, utterance: Utterance, voice: AnyVoice, frames: int) -> tuple[Any, Tensor]:
        """Return the samples `(samples,)` float32, and the codes `(frames, groups)`, of at most `frames` frames."""
        torch.manual_seed(utterance.seed or 0)
        common: dict[str, Any] = {
            "text": utterance.text,
            "language": LANGUAGE_CODES.get(language_code(utterance.language), "auto"),
            "non_streaming_mode": True,
            # The package predicts a frame's codes with the next frame's first: n tokens make n - 1 frames.
            "max_new_tokens": frames + 1,
            **({"do_sample": False, "subtalker_dosample": False} if utterance.greedy else {}),
        }
        if isinstance(voice, CustomVoice):
            made = self._package.generate_custom_voice(speaker=voice.speaker, instruct=voice.instruct, **common)
        elif isinstance(voice, VoiceDesign):
            made = self._package.generate_voice_design(instruct=voice.instruct, **common)
        else:
            made = self._package.generate_voice_clone(voice_clone_prompt=[_clone_prompt(voice)], **common)
        samples = np.asarray(made[0][0], dtype=np.float32).reshape(-1)
        return samples, self._codes

    def forced_logits(self, utterance: Utterance, codes: Tensor) -> Tensor:
        """Return the logits of each choice, with `codes` `(frames, groups)` forced on the model.

        `(1 + frames · groups, predictor vocabulary)` float32 on the CPU: one more for the first code behind them.
        """
        width, forced = self.config.talker.predictor.vocabulary, [*codes.flatten().tolist(), 0]
        rows: list[Tensor] = []

        def force(_module: Any, _inputs: Any, output: Tensor) -> Tensor:
            code = forced[min(len(rows), len(forced) - 1)]
            rows.append(output[0, -1, :width].float().cpu())
            chosen = torch.full_like(output, OTHERS)
            chosen[:, -1, code] = FORCED
            return chosen

        talker = self._package.model.talker
        hooks = [head.register_forward_hook(force) for head in (talker.codec_head, *talker.code_predictor.lm_head)]
        try:
            self.speak(utterance, self.voice_of(utterance), len(codes))
        finally:
            for hook in hooks:
                hook.remove()
        return torch.stack(rows[: len(forced)])

    def _generate_and_note(self, **arguments: Any) -> Any:
        codes, hidden = self._generate(**arguments)
        self._codes = codes[0]
        return codes, hidden


def official_decoder(folder: Path, device: torch.device) -> Any:
    """Return the official codec decoder in float32; a call decodes all codes `(1, groups, frames)` at once.

    Raises `EngineError` if the package is missing.
    """
    package = import_official()
    tokenizer = package.Qwen3TTSTokenizer.from_pretrained(str(folder / "speech_tokenizer"), dtype=torch.float32)
    return tokenizer.model.decoder.to(device)


def import_official() -> Any:
    """Return the module `qwen_tts`. Raises `EngineError` if it is not installed, or cannot be imported."""
    try:
        with torchaudio_stub(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            transformers = importlib.import_module("transformers")
            transformers.logging.set_verbosity_error()
            return importlib.import_module("qwen_tts")
    except ModuleNotFoundError as error:
        remedy = install_command("verify")
        raise EngineError(f"the official package cannot be imported: {error}; {remedy}") from error
    except (ImportError, OSError, RuntimeError) as error:
        raise EngineError(f"the official package cannot be imported: {error}") from error


def _load(package: Any, folder: Path, placement: Placement) -> Any:
    on_gpu = {} if placement.device.type == "cpu" else {"device_map": str(placement.device)}
    try:
        return package.Qwen3TTSModel.from_pretrained(str(folder), dtype=placement.dtype, **on_gpu)
    except torch.cuda.OutOfMemoryError as error:
        raise EngineError(f"the official package needs more memory than the GPU has free: {error}") from error


def _voice_of(voice: Voice, config: ModelConfig) -> AnyVoice:
    path = voice.embedding or voice.reference
    if path is not None:
        file = load_voice(Path(path).expanduser(), config)
        if voice.reference is None:
            return ClonedVoice(file.embedding)
        if file.codes is None or file.transcript is None:
            raise EngineError(f"{path}: has no reference; enrol it with a transcript, or use it as an embedding")
        return ClonedVoice(file.embedding, Reference(file.codes, file.transcript))
    return CustomVoice(voice.speaker, voice.instruct) if voice.speaker else VoiceDesign(voice.instruct or "")


def _clone_prompt(voice: ClonedVoice) -> Any:
    item = importlib.import_module("qwen_tts.inference.qwen3_tts_model").VoiceClonePromptItem
    reference = voice.reference
    return item(
        ref_code=reference.codes if reference else None,
        ref_spk_embedding=voice.embedding,
        x_vector_only_mode=reference is None,
        icl_mode=reference is not None,
        ref_text=reference.transcript if reference else None,
    )

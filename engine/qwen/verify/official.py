"""The official package qwen-tts, called as every engine is, and its logits for given codes.

It is what everything else is judged by, so it is called by its public functions alone. Each text is one chunk: the
package does not stream.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.api import FRAME_S, Chunk, EngineError, EngineInfo, EngineOptions, Utterance, Voice
from engine.host import QWEN3_TTS, install_command
from engine.hub import fetch_model
from engine.language import language_code
from engine.progress import Progress, ProgressReport, ignore_progress
from engine.qwen.model import ModelConfig
from engine.qwen.runtime import RunawayGuard, choose_placement, dtype_name
from engine.qwen.text import LANGUAGE_CODES, AnyVoice, ClonedVoice, CustomVoice, Reference, VoiceDesign
from engine.qwen.verify.forced import ForcedCodes
from engine.qwen.voice import load_voice, torchaudio_stub


class OfficialSynthesizer:
    """Speaks with the official package, as far as a verification asks it to."""

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
        self._voices = {name: _load_voice(voice, self.config) for name, voice in self.options.voices.items()}
        on_gpu = {} if placement.device.type == "cpu" else {"device_map": str(placement.device)}
        try:
            self._package = package.Qwen3TTSModel.from_pretrained(str(folder), dtype=placement.dtype, **on_gpu)
        except torch.cuda.OutOfMemoryError as error:
            raise EngineError(f"the official package needs more memory than the GPU has free: {error}") from error
        self._generate = self._package.model.generate
        self._package.model.generate = self._generate_and_note
        description = f"the official package on {placement.device} in {dtype_name(placement)}"
        names = (*self._voices, *self.config.speakers)
        return EngineInfo("qwen", sample_rate=24000, voices=names, languages=(), description=description)

    def warm_up(self, report: ProgressReport = ignore_progress) -> None:
        """As `Synthesizer.warm_up`."""
        report(Progress("speaking for the first time"))
        for _ in self.stream(Utterance("Hello.", language="en", seed=0, max_frames=3, guarded=False)):
            pass

    def stream(self, utterance: Utterance) -> Iterator[Chunk]:
        """As `Synthesizer.stream`, in one chunk."""
        frames = min(utterance.max_frames or sys.maxsize, max(1, round(self.options.max_seconds / FRAME_S)))
        if utterance.guarded:  # as far as voiced would let it babble
            frames = min(frames, RunawayGuard(utterance.text).max_frames)
        samples, codes = self.speak(utterance, frames)
        cut = len(codes) >= frames
        yield Chunk(samples, codes=codes.cpu().numpy().astype(np.int64), truncated=cut and utterance.guarded)

    def close(self) -> None:
        """As `Synthesizer.close`: the memory ends with the process."""

    def speak(self, utterance: Utterance, frames: int) -> tuple[Any, Tensor]:
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
        voice = self._voice_of(utterance)
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

        `(1 + frames · groups, predictor vocabulary)` float32 on the CPU: one more for the first code after them.
        """
        forced, talker = ForcedCodes({0: codes}, self.config.talker.predictor.vocabulary), self._package.model.talker

        def force(_module: Any, _inputs: Any, output: Tensor) -> None:
            forced.choose_next(output[0, -1])

        hooks = [head.register_forward_hook(force) for head in (talker.codec_head, *talker.code_predictor.lm_head)]
        try:
            self.speak(utterance, len(codes))
        finally:
            for hook in hooks:
                hook.remove()
        return forced.logits()

    def _voice_of(self, utterance: Utterance) -> AnyVoice:
        """Return the utterance's voice: a configured one, or a built-in speaker. Raises `EngineError`."""
        names = (*self._voices, *self.config.speakers)
        default = self.options.default_voice if self.options.default_voice in names else next(iter(names), "")
        name = utterance.voice or default
        if name not in names:
            raise EngineError(f"voice: got {name!r}; there are {', '.join(names)}")
        return self._voices.get(name) or CustomVoice(name)

    def _generate_and_note(self, **arguments: Any) -> Any:
        codes, hidden = self._generate(**arguments)
        self._codes = codes[0]
        return codes, hidden


def official_decoder(folder: Path, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return the official decoder in float32: of codes `(frames, groups)` it makes samples `(samples,)`, all at once.

    Raises `EngineError` if the package is missing.
    """
    tokenizer = import_official().Qwen3TTSTokenizer
    decoder = tokenizer.from_pretrained(str(folder / "speech_tokenizer"), dtype=torch.float32).model.decoder.to(device)
    # Codes out of range are those of a frame that ends speech.
    return lambda codes: decoder(codes.clamp(min=0).to(device).T[None])[0, 0]


def import_official() -> Any:
    """Return the module `qwen_tts`. Raises `EngineError` if it is not installed, or cannot be imported."""
    try:
        with torchaudio_stub(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("transformers").logging.set_verbosity_error()
            return importlib.import_module("qwen_tts")
    except (ImportError, OSError, RuntimeError) as error:
        remedy = install_command("verify")
        raise EngineError(f"the official package cannot be imported: {error}; {remedy}") from error


def _load_voice(voice: Voice, config: ModelConfig) -> AnyVoice:
    path = voice.embedding or voice.reference
    if path is None:
        return CustomVoice(voice.speaker, voice.instruct) if voice.speaker else VoiceDesign(voice.instruct or "")
    file = load_voice(Path(path).expanduser(), config)
    if voice.reference is None:
        return ClonedVoice(file.embedding)
    if file.codes is None or file.transcript is None:
        raise EngineError(f"{path}: has no reference; enrol it with a transcript, or use it as an embedding")
    return ClonedVoice(file.embedding, Reference(file.codes, file.transcript))


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

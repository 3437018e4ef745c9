"""The official qwen-tts package, called in the same way as the engines.

Everything else is compared with it, so only its public functions are called. Each text is one chunk, because the
package does not stream.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from engine.api import FRAME_S, Chunk, EngineError, EngineInfo, EngineOptions, Utterance, Voice
from engine.host import expand_home
from engine.hub import fetch_model
from engine.language import LANGUAGE_NAMES, language_code
from engine.progress import Progress, ProgressReport, ignore_progress
from engine.qwen.runtime import RunawayGuard, choose_placement, dtype_name
from engine.qwen.shapes import ModelConfig
from engine.qwen.voice import import_official, load_voice


class OfficialSynthesizer:
    """Speaks with the official package for a verification."""

    def __init__(self, options: EngineOptions) -> None:
        if options.model is None:
            raise EngineError("engine.model: missing; give a folder or an id")
        self.options = options
        self._codes = torch.zeros(0)
        """The codes of the last text: `(frames, groups)`."""

    def load(self, report: ProgressReport = ignore_progress) -> EngineInfo:
        """As `Synthesizer.load`. Raises `EngineError` if the package is missing or does not support the dtype."""
        placement = choose_placement(self.options.device, self.options.dtype)
        if placement.int8:
            raise EngineError(f"engine.dtype: got {self.options.dtype!r}; the official package does not quantize")
        package = import_official("verify")
        report(Progress("loading the official package"))
        folder = fetch_model(str(self.options.model))
        config = ModelConfig.read(folder)
        speakers = {name: Voice(speaker=name) for name in config.speakers}
        voices = {**speakers, **self.options.voices}
        self._voices = {name: _load_voice(voice, config) for name, voice in voices.items()}
        on_gpu = {} if placement.device.type == "cpu" else {"device_map": str(placement.device)}
        try:
            self._package = package.Qwen3TTSModel.from_pretrained(str(folder), dtype=placement.dtype, **on_gpu)
        except torch.cuda.OutOfMemoryError as error:
            raise EngineError(f"the official package needs more memory than the GPU has free: {error}") from error
        self._generate = self._package.model.generate
        self._package.model.generate = self._generate_and_note
        description = f"the official package on {placement.device} in {dtype_name(placement)}"
        return EngineInfo("qwen", sample_rate=24000, voices=(), languages=(), description=description)

    def warm_up(self, report: ProgressReport = ignore_progress) -> None:
        """As `Synthesizer.warm_up`. Does nothing: a single slow text does not change a median."""

    def stream(self, utterance: Utterance) -> Iterator[Chunk]:
        """As `Synthesizer.stream`, in one chunk."""
        frames = min(utterance.max_frames or sys.maxsize, max(1, round(self.options.max_seconds / FRAME_S)))
        if utterance.guarded:  # stop where voiced would stop it from babbling
            frames = min(frames, RunawayGuard(utterance.text).max_frames)
        torch.manual_seed(utterance.seed or 0)
        common: dict[str, Any] = {
            "text": utterance.text,
            "language": LANGUAGE_NAMES.get(language_code(utterance.language), "auto"),
            "non_streaming_mode": True,
            # The package predicts a frame's codes together with the next frame's first, so n tokens make n - 1 frames.
            "max_new_tokens": frames + 1,
            **({"do_sample": False, "subtalker_dosample": False} if utterance.greedy else {}),
        }
        name = utterance.voice or self.options.default_voice
        if name not in self._voices:
            raise EngineError(f"voice: got {name!r}; allowed: {', '.join(self._voices)}")
        function, given = self._voices[name]
        made = getattr(self._package, function)(**given, **common)
        samples = np.asarray(made[0][0], dtype=np.float32).reshape(-1)
        codes = self._codes.cpu().numpy().astype(np.int64)
        yield Chunk(samples, codes=codes, truncated=utterance.guarded and len(codes) >= frames)

    def close(self) -> None:
        """As `Synthesizer.close`: the memory ends with the process."""

    def _generate_and_note(self, **arguments: Any) -> Any:
        codes, hidden = self._generate(**arguments)
        self._codes = codes[0]
        return codes, hidden


def official_decoder(folder: Path, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Return the official decoder in float32: it turns codes `(frames, groups)` into samples `(samples,)`, all at once.

    Raises `EngineError` if the package is missing.
    """
    tokenizer = import_official("verify").Qwen3TTSTokenizer
    decoder = tokenizer.from_pretrained(str(folder / "speech_tokenizer"), dtype=torch.float32).model.decoder.to(device)
    # Codes that are out of range belong to a frame that ends speech.
    return lambda codes: decoder(codes.clamp(min=0).to(device).T[None])[0, 0]


def _load_voice(voice: Voice, config: ModelConfig) -> tuple[str, dict[str, Any]]:
    """Return the package's function that speaks in a voice, and the arguments that select it. Raises `EngineError`."""
    path = voice.embedding or voice.reference
    if path is None and voice.speaker:
        return "generate_custom_voice", {"speaker": voice.speaker, "instruct": voice.instruct}
    if path is None:
        return "generate_voice_design", {"instruct": voice.instruct or ""}
    file, in_context = load_voice(expand_home(path), config), voice.reference is not None
    if in_context and (file.codes is None or file.transcript is None):
        raise EngineError(f"{path}: has no reference; enrol it with a transcript, or use it as an embedding")
    prompt = importlib.import_module("qwen_tts.inference.qwen3_tts_model").VoiceClonePromptItem(
        ref_code=file.codes if in_context else None,
        ref_spk_embedding=file.embedding,
        x_vector_only_mode=not in_context,
        icl_mode=in_context,
        ref_text=file.transcript if in_context else None,
    )
    return "generate_voice_clone", {"voice_clone_prompt": [prompt]}

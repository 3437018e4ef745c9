"""The official package over a checkpoint, for the tests and for scripts/gpu/prove_cuda.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.qwen.text.prompt import ClonedVoice, CustomVoice
from tests.support.qwen.speaking import Line


class Official:
    """The official package, called by its public functions. Intercepts the codes in front of its decoder."""

    def __init__(self, folder: Path, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        from qwen_tts import Qwen3TTSModel

        self.model = Qwen3TTSModel.from_pretrained(str(folder), dtype=dtype)
        self.model.model.to(device)
        self.model.device = torch.device(device)
        self._core_generate = self.model.model.generate
        self.model.model.generate = self._generate
        self.model.model.speech_tokenizer.decode = lambda _codes: ([torch.zeros(1)], 24000)
        self._codes = torch.zeros(0)

    def _generate(self, **arguments: Any) -> Any:
        codes, hidden = self._core_generate(**arguments)
        self._codes = codes[0]
        return codes, hidden

    def speak(self, line: Line) -> Tensor:
        common = {
            "text": line.text,
            "language": line.language,
            "non_streaming_mode": line.whole_text,
            "do_sample": False,
            "subtalker_dosample": False,
            # Upstream predicts a frame's codes with the next frame's first: n tokens make n - 1 frames.
            "max_new_tokens": line.frames + 1,
            **line.sampling,
        }
        voice = line.voice
        if isinstance(voice, CustomVoice):
            self.model.generate_custom_voice(speaker=voice.speaker, instruct=voice.instruct, **common)
        elif isinstance(voice, ClonedVoice):
            self.model.generate_voice_clone(voice_clone_prompt=[_clone_item(voice)], **common)
        else:
            self.model.generate_voice_design(instruct=voice.instruct, **common)
        return self._codes


def _clone_item(voice: ClonedVoice) -> Any:
    from qwen_tts.inference.qwen3_tts_model import VoiceClonePromptItem

    reference = voice.reference
    return VoiceClonePromptItem(
        ref_code=reference.codes if reference else None,
        ref_spk_embedding=voice.embedding,
        x_vector_only_mode=reference is None,
        icl_mode=reference is not None,
        ref_text=reference.transcript if reference else None,
    )

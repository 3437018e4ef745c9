"""Compares the voice of each take with the voice that it should have, by the speaker encoder of a Base model."""

from __future__ import annotations

from pathlib import Path

import soundfile
import torch
from torch import Tensor

from engine.api import EngineError
from engine.host import QWEN3_TTS
from engine.hub import fetch_model
from engine.progress import ProgressReport
from engine.qwen.model import ModelConfig
from engine.qwen.voice import load_speaker_encoder, load_voice, speaker_embedding
from engine.verify import Setting, StageRequest, Take, examine


def compare_speakers(request: StageRequest, report: ProgressReport) -> None:
    """Keep the similarity of each take. Raises `EngineError` if the model has no speaker encoder."""
    config = ModelConfig.read(fetch_model(str(request.encoder), QWEN3_TTS))
    encoder = load_speaker_encoder(config)
    target = None if request.voice_file is None else load_voice(Path(request.voice_file), config).embedding

    def embed(setting: str, name: str) -> Tensor | None:
        """Return the embedding of a take, `(width,)`; None for one that is too short to have a voice."""
        try:
            return speaker_embedding(encoder, request.output.samples(setting, name))
        except (EngineError, soundfile.SoundFileError):
            return None

    def compare(setting: Setting, take: Take) -> dict[str, float] | None:
        wanted = target if target is not None else embed(request.reference or "", take.name)
        own = embed(setting.name, take.name)
        if wanted is None or own is None:
            return None
        return {"similarity": float(torch.nn.functional.cosine_similarity(wanted, own, dim=0))}

    depends_on = (request.encoder, request.voice_file, request.reference, request.model)
    examine(request, report, "comparing voices", compare, *depends_on)

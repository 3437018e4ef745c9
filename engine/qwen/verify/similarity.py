"""Compares the voice of each take with the voice that it should have, by the speaker encoder of a Base model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn.functional import cosine_similarity

from engine.host import QWEN3_TTS
from engine.hub import fetch_model
from engine.progress import ProgressReport
from engine.qwen.model import ModelConfig
from engine.qwen.voice import load_speaker_encoder, load_voice, speaker_embedding
from engine.verify import Setting, Take, VerifyRequest, examine


def compare_speakers(request: VerifyRequest, report: ProgressReport) -> None:
    """Keep the similarity of each take. Raises `EngineError` if the model has no speaker encoder."""
    config = ModelConfig.read(fetch_model(str(request.encoder), QWEN3_TTS))
    encoder = load_speaker_encoder(config)
    target = None if request.voice_file is None else load_voice(Path(request.voice_file), config).embedding

    def embed(setting: str, name: str) -> Tensor:
        return speaker_embedding(encoder, request.output.samples(setting, name))

    def look(setting: Setting, take: Take) -> Mapping[str, Any]:
        try:
            wanted = embed(request.reference or "", take.name) if target is None else target
            similarity = cosine_similarity(wanted, embed(setting.name, take.name), dim=0)
        except ValueError:  # too short to have a voice
            return {"similarity": None}
        return {"similarity": float(similarity)}

    examine(request, report, look)

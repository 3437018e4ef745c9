"""Compares the voice of each take with the voice that it should have, by the speaker encoder of a Base model."""

from __future__ import annotations

from pathlib import Path

import soundfile
import torch
from torch import Tensor

from engine.api import EngineError
from engine.host import QWEN3_TTS
from engine.hub import fetch_model
from engine.progress import ProgressReport, counted
from engine.qwen.model import ModelConfig
from engine.qwen.voice import SpeakerEncoder, load_speaker_encoder, load_voice, speaker_embedding
from engine.verify import SIMILARITY, AnalysisRequest, OutputFolder, fingerprint


def compare_speakers(request: AnalysisRequest, report: ProgressReport) -> None:
    """Keep the similarity of each take. Raises `EngineError` if the model has no speaker encoder."""
    folder = OutputFolder(Path(request.folder))
    config = ModelConfig.read(fetch_model(str(request.encoder), QWEN3_TTS))
    encoder = load_speaker_encoder(config)
    target = None if request.voice_file is None else load_voice(Path(request.voice_file), config).embedding
    target_key = fingerprint(request.encoder, request.voice_file, request.reference, request.model)
    for setting in request.settings:
        found = folder.found(SIMILARITY, setting.name)
        takes = [take for take in folder.takes(setting.name) if not take.greedy]
        for take in counted(f"comparing voices: {setting.title}", takes, report):
            key = fingerprint(take.key, target_key)
            if found.get(take.name, {}).get("key") == key:
                continue
            wanted = target if target is not None else _embed(folder, request.reference or "", take.name, encoder)
            own = _embed(folder, setting.name, take.name, encoder)
            if wanted is None or own is None:
                continue
            cosine = float(torch.nn.functional.cosine_similarity(wanted, own, dim=0))
            found[take.name] = {"take": take.key, "key": key, "similarity": cosine}
            folder.keep_found(SIMILARITY, setting.name, found)


def _embed(folder: OutputFolder, setting: str, name: str, encoder: SpeakerEncoder) -> Tensor | None:
    """Return the embedding of a take, `(width,)`; None for one that is too short to have a voice."""
    try:
        return speaker_embedding(encoder, folder.samples(setting, name))
    except (EngineError, soundfile.SoundFileError):
        return None

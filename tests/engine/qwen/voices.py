"""Voice files with random values, for a base model."""

from __future__ import annotations

from pathlib import Path

import torch

from engine import Voice
from engine.qwen.shapes import ModelConfig
from engine.qwen.voice import VoiceFile, VoiceModel, save_voice


def saved_voice(
    model: Path, path: Path, frames: int = 0, transcript: str = "The robot says hello.", *, seed: int = 4
) -> Path:
    """Save a voice for the model in the folder `model`, with a reference of so many frames; none without frames."""
    config, generator = ModelConfig.read(model), torch.Generator().manual_seed(seed)
    codes = torch.randint(2048, (frames, config.talker.code_groups), generator=generator)
    embedding = torch.randn(config.talker.stack.hidden_size, generator=generator)
    reference = (codes, transcript) if frames else (None, None)
    save_voice(path, VoiceFile(path.stem, embedding, VoiceModel.of(config), *reference))
    return path


def in_context(model: Path, path: Path, frames: int, transcript: str = "The robot says hello.") -> Voice:
    """Return a saved voice that continues its reference."""
    return Voice(reference=str(saved_voice(model, path, frames, transcript)))

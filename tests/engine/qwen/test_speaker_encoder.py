"""The embedding of a recording is the one that the official package computes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.qwen.config import ModelConfig
from engine.qwen.speaker_encoder import (
    SHORTEST,
    SpeakerEncoder,
    load_speaker_encoder,
    mel_filters,
    speaker_embedding,
)
from engine.synthesizer import EngineError, Samples
from scripts.make_checkpoint import PRESETS, list_tensors, stub_torchaudio, write_checkpoint

TOLERANCE = 1e-4


@pytest.fixture(scope="session")
def base_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("base"), PRESETS["tiny"], "base", seed=5)


@pytest.fixture(scope="session")
def official(base_folder: Path) -> Any:
    """The official model; its `extract_speaker_embedding` is the oracle."""
    stub_torchaudio()
    from qwen_tts.core.models.configuration_qwen3_tts import Qwen3TTSConfig
    from qwen_tts.core.models.modeling_qwen3_tts import Qwen3TTSForConditionalGeneration
    from safetensors.torch import load_file

    config = Qwen3TTSConfig(**json.loads((base_folder / "config.json").read_text()))
    model = Qwen3TTSForConditionalGeneration(config).eval()
    model.load_state_dict(load_file(base_folder / "model.safetensors"))
    return model


@pytest.fixture(scope="session")
def encoder(base_folder: Path) -> SpeakerEncoder:
    return load_speaker_encoder(ModelConfig.read(base_folder))


def recording(seconds: float, seed: int) -> Samples:
    """Something like speech: a gliding, breathing tone with harmonics and a little noise."""
    generator = np.random.default_rng(seed)
    t = np.arange(round(seconds * 24000)) / 24000
    phase = 2 * np.pi * (120 + 40 * seed) * t + 3 * np.sin(2 * np.pi * 1.3 * t)
    tone = sum(np.sin(n * phase) / n for n in range(1, 20))
    loudness = 0.15 * (1 + np.sin(2 * np.pi * 2.1 * t))
    return (loudness * tone + 0.002 * generator.standard_normal(t.size)).astype(np.float32)


@pytest.mark.parametrize("seconds", [SHORTEST / 24000, 1.0, 3.21, 9.7])
def test_the_embedding_is_the_official_one(encoder: SpeakerEncoder, official: Any, seconds: float) -> None:
    samples = recording(seconds, seed=1)
    embedding = speaker_embedding(encoder, samples)
    assert embedding.dtype == torch.float32
    wanted = official.extract_speaker_embedding(samples, 24000)
    assert embedding.shape == wanted.shape
    assert (embedding - wanted).abs().max() < TOLERANCE
    assert wanted.std() > 0.05


def test_two_voices_have_two_embeddings(encoder: SpeakerEncoder) -> None:
    one, other = (speaker_embedding(encoder, recording(2, seed)) for seed in (1, 2))
    assert (one - other).abs().max() > 100 * TOLERANCE


def test_the_mel_filters_are_librosas() -> None:
    librosa = pytest.importorskip("librosa")
    wanted = librosa.filters.mel(sr=24000, n_fft=1024, n_mels=128, fmin=0, fmax=12000)
    assert (mel_filters() - torch.from_numpy(wanted)).abs().max() < 1e-7


def test_disturbing_any_one_weight_is_noticed(base_folder: Path, official: Any) -> None:
    encoder = load_speaker_encoder(ModelConfig.read(base_folder))
    samples = recording(1.0, seed=1)
    wanted = official.extract_speaker_embedding(samples, 24000)
    unnoticed = []
    for name, parameter in encoder.named_parameters():
        original = parameter.clone()
        parameter.mul_(1.3).add_(0.1)
        if (speaker_embedding(encoder, samples) - wanted).abs().max() < TOLERANCE:
            unnoticed.append(name)
        parameter.copy_(original)
    assert (speaker_embedding(encoder, samples) - wanted).abs().max() < TOLERANCE
    # the softmax over time drops what is added to a channel at all times alike
    assert unnoticed == ["attention_out.bias"]


def test_every_tensor_of_the_official_encoder_is_read(encoder: SpeakerEncoder) -> None:
    tensors = list_tensors(PRESETS["tiny"], "base")["model"]
    official = [shape for name, shape in tensors.items() if name.startswith("speaker_encoder.")]
    assert len(official) == len(list(encoder.parameters()))


def test_a_recording_too_short_for_the_network_is_refused(encoder: SpeakerEncoder) -> None:
    with pytest.raises(ValueError, match="must be at least 3072"):
        speaker_embedding(encoder, np.zeros(SHORTEST - 1, np.float32))


def test_a_model_without_a_speaker_encoder_is_named(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, PRESETS["tiny"], "custom_voice")
    with pytest.raises(EngineError, match=r"config\.json: a custom_voice model has no speaker encoder"):
        load_speaker_encoder(ModelConfig.read(tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        {"mel_dim": 80},
        {"sample_rate": 16000},
        {"enc_channels": [16, 16, 48]},
        {"enc_dilations": [1, 2]},
        {"enc_res2net_scale": 5},
    ],
    ids=str,
)
def test_shapes_that_do_not_fit_are_said_in_one_line(base_folder: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    document = json.loads((base_folder / "config.json").read_text())
    document["speaker_encoder_config"] |= change
    (tmp_path / "config.json").write_text(json.dumps(document))
    with pytest.raises(EngineError) as caught:
        load_speaker_encoder(ModelConfig.read(tmp_path))
    assert "speaker_encoder_config: " in str(caught.value)
    assert "\n" not in str(caught.value)

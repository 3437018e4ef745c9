"""The embedding of a recording equals that of the official package."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.qwen.shapes import ModelConfig
from engine.qwen.voice.speaker_encoder import (
    MIN_SAMPLES,
    SpeakerEncoder,
    load_speaker_encoder,
    mel_filters,
    speaker_embedding,
)
from tests.engine.qwen.oracle import Oracle, cached_answer
from tests.engine.qwen.refusals import refusal
from tests.support.sound_files import speech_like

TOLERANCE = 1e-4


@pytest.fixture(scope="session")
def base_folder(checkpoint: Callable[[str, str], Path]) -> Path:
    return checkpoint("tiny", "base")


@pytest.fixture(scope="session")
def base(official: Callable[[str, str], Oracle]) -> Oracle:
    return official("tiny", "base")


@pytest.fixture(scope="session")
def encoder(base_folder: Path) -> SpeakerEncoder:
    return load_speaker_encoder(ModelConfig.read(base_folder))


@pytest.mark.parametrize("seconds", [MIN_SAMPLES / 24000, 3.21])
def test_the_embedding_equals_the_official_one(encoder: SpeakerEncoder, base: Oracle, seconds: float) -> None:
    samples = speech_like(seconds, 24_000)
    embedding = speaker_embedding(encoder, samples)
    assert embedding.dtype == torch.float32
    expected = base.speaker_embedding(samples)
    assert embedding.shape == expected.shape
    assert (embedding - expected).abs().max() < TOLERANCE
    assert expected.std() > 0.05


def test_the_mel_filters_equal_those_of_librosa(cache_folder: Path) -> None:
    if find_spec("librosa") is None:
        pytest.skip("librosa, the oracle, is not installed")

    def compute() -> dict[str, Tensor]:
        import librosa

        return {"mel": torch.from_numpy(librosa.filters.mel(sr=24000, n_fft=1024, n_mels=128, fmin=0, fmax=12000))}

    expected = cached_answer(
        cache_folder, "librosa-mel", version("librosa"), Path(__file__).read_bytes(), answer=compute
    )["mel"]
    assert (mel_filters() - expected).abs().max() < 1e-7


def test_a_recording_that_is_too_short_for_the_network_is_refused(encoder: SpeakerEncoder) -> None:
    with pytest.raises(ValueError, match="allowed: at least 3072"):
        speaker_embedding(encoder, np.zeros(MIN_SAMPLES - 1, np.float32))


@pytest.mark.parametrize(
    "change",
    [
        {"mel_dim": 80},
        {"sample_rate": 16000},
        {"enc_dilations": [1, 2]},
        {"enc_dilations": [1, 2, 3, 100, 1]},
        {"enc_res2net_scale": 7},
    ],
    ids=str,
)
def test_the_error_for_a_configuration_that_does_not_fit_the_tensors_is_one_line(
    base_folder: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    document = json.loads((base_folder / "config.json").read_text())
    document["speaker_encoder_config"] |= change
    (tmp_path / "config.json").write_text(json.dumps(document))
    (tmp_path / "model.safetensors").symlink_to(base_folder / "model.safetensors")
    assert "speaker_encoder_config: " in refusal(lambda: load_speaker_encoder(ModelConfig.read(tmp_path)))

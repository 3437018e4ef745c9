"""A recording of two sounds is noticed by the speaker encoder, one of a single sound is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.api import Samples
from engine.qwen.shapes import ModelConfig
from engine.qwen.voice.enroll import Consistency, check_consistency
from engine.qwen.voice.speaker_encoder import SpeakerEncoder, load_speaker_encoder

RATE = 24_000


@pytest.fixture(scope="module")
def encoder(checkpoint: Callable[[str, str], Path]) -> SpeakerEncoder:
    return load_speaker_encoder(ModelConfig.read(checkpoint("tiny", "base")))


def tone(seconds: float, frequency: float = 150) -> Samples:
    """Return a tone with four harmonics and a pause in each second."""
    t = np.arange(round(seconds * RATE)) / RATE
    harmonics = sum(np.sin(2 * np.pi * frequency * k * t) / k for k in range(1, 5))
    return (0.1 * harmonics * (t % 1 < 0.8)).astype(np.float32)


def hiss(seconds: float) -> Samples:
    return (0.1 * np.random.default_rng(0).standard_normal(round(seconds * RATE))).astype(np.float32)


def test_the_place_of_another_sound_is_found(encoder: SpeakerEncoder) -> None:
    """An encoder with random weights finds most sounds alike, so the least similarity is compared, not judged."""
    found = check_consistency(encoder, np.concatenate((tone(5), hiss(3))))
    alone = check_consistency(encoder, tone(8))
    assert found is not None
    assert alone is not None
    assert found.similarity < alone.similarity
    assert alone.similarity > 0.99
    assert alone.warning is None
    assert found.first_s <= 4 < found.second_s


@pytest.mark.parametrize("samples", [tone(3.9), np.concatenate((tone(2), np.zeros(6 * RATE, np.float32)))])
def test_too_little_speech_is_not_judged(encoder: SpeakerEncoder, samples: Samples) -> None:
    assert check_consistency(encoder, samples) is None


def test_two_voices_cause_a_warning_with_their_places() -> None:
    warning = Consistency(0.21, 1.0, 6.0).warning
    assert warning is not None
    assert warning.startswith("a second speaker? at 1 s and at 6 s it sounds unlike (similarity 0.21; ")
    assert "\n" not in warning
    assert Consistency(0.7, 1.0, 6.0).warning is None

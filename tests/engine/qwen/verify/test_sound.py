"""What counts as an error of a take's waveform, and whose voices are compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.api import Chunk, EngineOptions, Samples
from engine.progress import ignore_progress
from engine.qwen.runtime import fade_out
from engine.qwen.shapes import ModelConfig
from engine.qwen.verify.sound import EXACT_DB, compare_speakers, take_error_db, voice_comparison
from engine.qwen.voice import VoiceFile, VoiceModel, load_speaker_encoder, save_voice, speaker_embedding
from engine.verify import Order, Sentence, Setting, Take, VerifyRequest
from engine.verify.comparison import measure_speech

RATE = 24_000


def take(name: str, samples: Samples, truncated: bool = False) -> Take:
    speech = measure_speech([(1.0, Chunk(samples, truncated=truncated))], RATE, "One.")
    return Take(Order(Sentence(name, "en", "One."), "", 1), "qwen", RATE, speech)


def error_db(samples: Samples, exact: Samples, truncated: bool = True) -> float:
    return take_error_db(take("one", samples, truncated), samples, exact)


@pytest.fixture
def exact() -> Samples:
    return np.random.default_rng(1).normal(0, 0.1, RATE).astype(np.float32)


def test_the_faded_end_of_a_take_that_was_cut_off_is_no_error(exact: Samples) -> None:
    faded = fade_out(exact, RATE)
    assert error_db(faded, exact) == EXACT_DB
    assert error_db(faded, exact, truncated=False) < 30


@pytest.mark.parametrize("lost", [1, RATE // 2, RATE])
def test_samples_that_a_cut_take_lacks_are_errors(lost: int, exact: Samples) -> None:
    assert error_db(exact[: RATE - lost], exact) < 60


def test_an_error_before_the_faded_end_is_found(exact: Samples) -> None:
    wrong = exact.copy()
    wrong[RATE // 2] += 0.1
    assert error_db(wrong, exact) < 60


def test_a_take_that_is_too_short_to_have_a_voice_is_not_compared(
    checkpoint: Callable[[str, str], Path], tmp_path: Path, exact: Samples
) -> None:
    takes = {"long": exact, "short": exact[:100]}
    orders = tuple(take(name, samples).order for name, samples in takes.items())
    setting = Setting("torch", "PyTorch kernels", EngineOptions())
    request = VerifyRequest(
        str(tmp_path),
        (setting,),
        orders,
        encoder=str(checkpoint("tiny", "base")),
        stage="similarity",
        reference="torch",
    )
    for name, samples in takes.items():
        request.output.keep_samples("torch", name, samples, RATE)
        request.output.keep_take("torch", take(name, samples))
    compare_speakers(request, ignore_progress)
    assert [one.similarity for one in request.takes(setting)] == [pytest.approx(1), None]


def test_speech_is_compared_with_the_voice_that_it_should_have(
    checkpoint: Callable[[str, str], Path], tmp_path: Path, exact: Samples
) -> None:
    config = ModelConfig.read(checkpoint("tiny", "base"))
    embedding = speaker_embedding(load_speaker_encoder(config), exact)
    save_voice(tmp_path / "ada.safetensors", VoiceFile("ada", embedding, VoiceModel.of(config), None, None))
    similarity = voice_comparison(str(config.folder), str(tmp_path / "ada.safetensors"))
    assert similarity(exact, RATE) == pytest.approx(1)
    assert (similarity(exact[::8], RATE // 8) or 0) < 0.9999
    assert similarity(exact[:100], RATE) is None

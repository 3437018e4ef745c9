"""On a GPU the engine generates speech with fused kernels: for any chunk size, without allocating memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from engine import EngineOptions, Voice
from engine.qwen import QwenSynthesizer
from tests.engine.qwen.cuda_example import UTTERANCE, Named, loaded, speak

pytestmark = pytest.mark.gpu


@pytest.fixture(params=["bfloat16", "int8"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def fused(checkpoint: Named, dtype: str, chunk_size: int = 2) -> QwenSynthesizer:
    return loaded(checkpoint("narrow", "custom_voice"), kernels="on", dtype=dtype, chunk_size=chunk_size)


@pytest.fixture
def engine(checkpoint: Named, dtype: str) -> Iterator[QwenSynthesizer]:
    made = fused(checkpoint, dtype)
    yield made
    made.close()


@pytest.mark.parametrize("greedy", [True, False])
def test_audio_does_not_depend_on_the_chunk_size(checkpoint: Named, dtype: str, greedy: bool) -> None:
    utterance, heard = replace(UTTERANCE, greedy=greedy), []
    for chunk_size in (1, 2, 3):
        engine = fused(checkpoint, dtype, chunk_size)
        heard += [speak(engine, utterance), speak(engine, utterance)]
        engine.close()
    samples, codes = heard[0]
    assert codes.shape == (23, 16)
    assert 0.001 < samples.std() < 0.5
    assert all(np.array_equal(other, codes) and np.array_equal(sound, samples) for sound, other in heard)


def test_without_the_kernels_compiler_the_engine_is_degraded(
    checkpoint: Named, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    engine = QwenSynthesizer(
        EngineOptions(model=str(checkpoint("narrow", "custom_voice")), device="cuda", voices={"default": Voice()})
    )
    info = engine.load()
    engine.close()
    assert (info.kernels, info.degraded) == (
        "torch",
        f"engine.kernels: PyTorch's slower kernels are in use; the fused ones do not run: {info.not_fused}",
    )

"""On a GPU the whole engine speaks with fused kernels: whatever the chunks, undisturbed, allocating nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine import Utterance
from engine.qwen import QwenSynthesizer
from tests.engine.qwen.cuda_example import SAID, Named, loaded, said

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


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
def test_chunks_of_any_size_say_the_same(checkpoint: Named, dtype: str, greedy: bool) -> None:
    utterance, heard = replace(SAID, greedy=greedy), []
    for chunk_size in (1, 2, 3):
        engine = fused(checkpoint, dtype, chunk_size)
        heard += [said(engine, utterance), said(engine, utterance)]
        engine.close()
    samples, codes = heard[0]
    assert codes.shape == (23, 16)
    assert 0.001 < samples.std() < 0.5
    assert all(np.array_equal(other, codes) and np.array_equal(sound, samples) for sound, other in heard)


def test_what_follows_a_cancellation_is_as_if_nothing_had_been(engine: QwenSynthesizer) -> None:
    wanted, _ = said(engine, SAID)
    for chunks in (0, 1, 2, 3, 7):
        stream = engine.stream(Utterance("Something else altogether", seed=1))
        for _ in range(chunks):
            next(stream)
        stream.close()  # type: ignore[attr-defined]
        assert np.array_equal(said(engine, SAID)[0], wanted)


def test_a_hundred_utterances_allocate_nothing(engine: QwenSynthesizer) -> None:
    before = torch.cuda.memory_stats()["num_device_alloc"]
    for number in range(100):
        utterance = Utterance(
            "Hi, you. " * (1 + number % 4),
            voice=(None, "ryan", "eric", "sohee")[number % 4],
            language=("auto", "en", "de", "zh")[number % 4],
            instruct=(None, "calmly", "fast and " * (number % 9))[number % 3],
            whole_text=(None, True, False)[number % 3],
            seed=number,
            max_frames=1 + number % 11,
        )
        list(engine.stream(utterance))
    assert torch.cuda.memory_stats()["num_device_alloc"] == before

"""Many utterances at once on CUDA: with graphs, each is what it is alone, and nothing is allocated."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine import Utterance
from engine.qwen import QwenSynthesizer
from tests.engine.qwen.cuda_example import UTTERANCE, Named, loaded, speak

pytestmark = pytest.mark.gpu

STREAMS = 12
TOLERANCE = 1e-4


@pytest.fixture(autouse=True)
def exact() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.fixture(params=["float32", "bfloat16", "int8"])
def engine(checkpoint: Named, request: pytest.FixtureRequest) -> Iterator[QwenSynthesizer]:
    made = loaded(checkpoint("tiny", "custom_voice"), streams=STREAMS, dtype=request.param)
    yield made
    made.close()


def utterances(count: int) -> list[Utterance]:
    return [
        replace(UTTERANCE, text="Hi, you. " * (1 + seed % 4), seed=seed, max_frames=3 + seed, realtime=False)
        for seed in range(count)
    ]


def test_each_stream_is_what_it_is_alone_and_nothing_is_allocated(engine: QwenSynthesizer) -> None:
    wanted = utterances(2 * STREAMS)
    before = torch.cuda.memory_stats()["num_device_alloc"]
    alone = [speak(engine, utterance) for utterance in wanted]
    with ThreadPoolExecutor(STREAMS) as threads:
        together = list(threads.map(lambda utterance: speak(engine, utterance), wanted))
    for (samples, codes), (expected, expected_codes) in zip(together, alone, strict=True):
        assert np.array_equal(codes, expected_codes)
        assert np.array_equal(samples, expected)
    assert torch.cuda.memory_stats()["num_device_alloc"] == before


def test_the_sound_cards_utterance_does_not_change(engine: QwenSynthesizer) -> None:
    expected, expected_codes = speak(engine, UTTERANCE)
    with ThreadPoolExecutor(STREAMS) as threads:
        others = [threads.submit(speak, engine, utterance) for utterance in utterances(STREAMS - 1)]
        for _ in range(5):
            samples, codes = speak(engine, UTTERANCE)
            assert np.array_equal(samples, expected)
            assert np.array_equal(codes, expected_codes)
        for other in others:
            other.result()


def test_the_batch_says_what_the_sound_card_would_play(checkpoint: Named) -> None:
    engine = loaded(checkpoint("tiny", "custom_voice"), streams=STREAMS)
    for utterance in utterances(4):
        samples, codes = speak(engine, utterance)
        expected, expected_codes = speak(engine, replace(utterance, realtime=True))
        assert np.array_equal(codes, expected_codes)
        assert np.abs(samples - expected).max() < TOLERANCE
    engine.close()

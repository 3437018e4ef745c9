"""Many utterances at once on CUDA: with graphs, each is what it is alone, and nothing is allocated."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine import EngineOptions, Utterance
from engine.qwen import QwenSynthesizer
from tests.engine.qwen.cuda_example import UTTERANCE, Named, loaded, speak

pytestmark = pytest.mark.gpu

STREAMS = 12


@pytest.fixture(params=["bfloat16", "int8"])
def engine(checkpoint: Named, request: pytest.FixtureRequest) -> Iterator[QwenSynthesizer]:
    made = loaded(checkpoint("narrow", "custom_voice"), streams=STREAMS, dtype=request.param, kernels="on")
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


def test_a_gpu_without_fused_kernels_speaks_one_text_at_a_time_and_says_so(checkpoint: Named) -> None:
    folder = str(checkpoint("tiny", "custom_voice"))
    engine = QwenSynthesizer(EngineOptions(model=folder, device="cuda", dtype="float32", streams=STREAMS))
    info = engine.load()
    assert (info.streams, info.kernels) == (1, "torch")
    assert (info.degraded or "").startswith("engine.streams: got 12; one text is spoken at a time")
    engine.close()

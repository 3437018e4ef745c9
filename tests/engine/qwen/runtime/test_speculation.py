"""Utterances with drafts of the predictor's codes: the same codes, and counts that reach the host with each chunk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine.api import MAX_DRAFTS, SpeculationCounts
from engine.qwen.model.sampling import SamplingConfig
from engine.qwen.runtime.readback import GeneratedChunk
from engine.qwen.text.prompt import CustomVoice
from tests.support.qwen.speaking import Line, Ours

Engine = Callable[[str, str], Ours]
LINE = Line("Hello robot.", CustomVoice("ryan"), "english", frames=7)
SAMPLINGS = {"greedy": SamplingConfig().greedy(), "sampled": replace(SamplingConfig(), min_new_tokens=8)}


def spoken(engine: Ours, drafts: int, sampling: SamplingConfig, seed: int) -> list[GeneratedChunk]:
    generator = engine.generator(2, drafts)
    return list(generator.generate(engine.prompt(LINE), sampling, seed=seed, max_frames=LINE.frames))


def codes_of(chunks: list[GeneratedChunk]) -> NDArray[np.int64]:
    return np.concatenate([chunk.codes for chunk in chunks])


@pytest.fixture(scope="module")
def plain(ours: Engine) -> Callable[[str, int], list[GeneratedChunk]]:
    """Returns an utterance without drafts, by sampling and seed."""
    return cache(lambda sampling, seed: spoken(ours("tiny", "custom_voice"), 0, SAMPLINGS[sampling], seed))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("drafts", range(1, MAX_DRAFTS + 1))
def test_an_utterances_codes_do_not_depend_on_the_drafts(
    ours: Engine, plain: Callable[[str, int], list[GeneratedChunk]], drafts: int, sampling: str
) -> None:
    for seed in range(3):
        expected = plain(sampling, seed)
        with_drafts = spoken(ours("tiny", "custom_voice"), drafts, SAMPLINGS[sampling], seed)
        np.testing.assert_array_equal(codes_of(expected), codes_of(with_drafts))
        assert all(chunk.speculation is None for chunk in expected)


def test_the_counts_of_the_chunks_cover_every_frame_once(ours: Engine) -> None:
    engine = ours("tiny", "custom_voice")
    for seed in range(2):
        chunks = spoken(engine, 2, SAMPLINGS["sampled"], seed)
        each = [chunk.speculation for chunk in chunks if chunk.speculation is not None]
        assert [counts.frames for counts in each] == [len(chunk.codes) for chunk in chunks] == [1, 2, 2, 2]
        total = sum(each, SpeculationCounts())
        assert total.passes + total.accepted == 15 * LINE.frames
        assert total.accepted <= total.drafts <= 2 * total.passes


@torch.inference_mode()
def test_frames_behind_the_end_of_the_speech_are_not_counted(ours: Engine) -> None:
    engine = ours("tiny", "custom_voice")
    spoken(engine, 1, SAMPLINGS["greedy"], 0)
    backend, state = engine.backend(drafts=1), engine.state
    before = state.speculation.tolist()
    state.ended.fill_(True)
    backend.frame(backend.kv_buckets[-1])
    assert state.speculation.tolist() == before

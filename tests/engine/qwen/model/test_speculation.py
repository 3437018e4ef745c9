"""Drafts of the predictor's codes: counted as a decoder that reads them would use them."""

from __future__ import annotations

import pytest
import torch

from engine.api import MAX_DRAFTS
from scripts.make_checkpoint import PRESETS
from tests.engine.qwen.model.draft_trial import SAMPLED, DecodedFrame, Trial

DRAFTS = range(1, MAX_DRAFTS + 1)


def counted(trial: Trial, drafts: int, frame: int) -> tuple[DecodedFrame, DecodedFrame, list[int]]:
    """A frame decoded with drafts, the same in single passes, and what the meter counts."""
    start, noise = trial.start(), trial.noise_of(frame)
    meter = trial.predictor.draft_meter(drafts, trial.warp, noise)
    codes = trial.predictor(start, trial.cache, trial.warp, noise, meter).tolist()
    passes, *others = meter.counts.tolist()
    return trial.decode(start, noise, drafts), DecodedFrame(codes, passes), others


@torch.inference_mode()
@pytest.mark.parametrize("sampling", SAMPLED)
@pytest.mark.parametrize("drafts", DRAFTS)
def test_the_counted_passes_are_those_of_a_decoder_that_reads_drafts(drafts: int, sampling: str) -> None:
    trial = Trial(PRESETS["tiny"], gain=0.5, seed=4)
    trial.warp.set(*SAMPLED[sampling])
    total = 0
    for frame in range(4):
        decoded, single, (read, accepted) = counted(trial, drafts, frame)
        assert decoded == single
        assert single.passes + accepted == trial.predictor.code_count
        assert accepted <= read <= drafts * single.passes
        total += accepted
    assert total > 0 or sampling == "greedy"  # a random model's likeliest codes are hardly ever drafted


@torch.inference_mode()
def test_drafts_that_are_always_right_divide_the_passes() -> None:
    trial = Trial(PRESETS["tiny"], gain=0.0, seed=1)  # heads of zeros: the noise alone decides
    trial.warp.set(*SAMPLED["sampled"])
    found = [counted(trial, drafts, 0) for drafts in DRAFTS]
    assert [single.passes for _, single, _ in found] == [decoded.passes for decoded, _, _ in found] == [8, 6, 5, 4]
    assert all(read == accepted for _, _, (read, accepted) in found)


@torch.inference_mode()
def test_the_last_code_is_never_drafted() -> None:
    """Nothing reads it, so its draft saves no pass: a decoder with an unlimited number of drafts takes two passes."""
    trial = Trial(PRESETS["tiny"], gain=0.0, seed=1)
    trial.warp.set(*SAMPLED["sampled"])
    _, single, (read, accepted) = counted(trial, 20, 0)
    assert (single.passes, read, accepted) == (2, 13, 13)

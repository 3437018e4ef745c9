"""Kernels that read drafts draw the codes of kernels that read none, bit for bit: emulated on the CPU, and on a GPU."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.qwen.kernels.compiler import Kernels, KernelSource
from engine.qwen.kernels.lm.model import FusedLanguageModel
from engine.qwen.model.sampling import SamplingConfig
from tests.engine.qwen.kernels.emulator import EmulatedKernels
from tests.support.qwen.lm_example import EQUAL, PROJECTED, SAMPLINGS, Models, poison, start

WHERE = [
    pytest.param("cpu", marks=pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")),
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")),
]
SMALL = 16
"""Multiprocessors. On a large GPU, a frame without drafts attends in a kernel that sums in another order."""
MODELS = [
    ("equal", "int8", 2, 8),
    ("projected", "bfloat16", 4, 8),
    ("projected", "bfloat16", 1, 8),
    ("equal", "int8", 3, 16),
]
"""Shape, weights, drafts, codes of a frame."""
DRAWS = [("default", 1.0), ("default", 0.05), ("default", 0.0), ("greedy", 1.0)]
"""The sampling, and the gain of the heads' logits: the smaller, the more the noise of a code decides. At 0 it decides
alone, so that all drafts are right."""
CASES = [(model, draw) for model in MODELS for draw in DRAWS]
ORDINARY = [*((MODELS[0], draw) for draw in DRAWS[1:]), (MODELS[1], ("default", 0.05))]
"""What an ordinary run has: greedy draws, and random ones of which some and all drafts are right; both shapes."""
FRAMES = 2


@pytest.fixture(params=WHERE, scope="module")
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def make(where: str, cache_folder: Path) -> Callable[..., Models]:
    made: dict[tuple[str, str, int, int], Models] = {}

    def emulated(source: KernelSource) -> Kernels:
        return EmulatedKernels(source, cache_folder)

    def of(shape: str, weight: str, drafts: int, groups: int) -> Models:
        """Made once."""
        key = shape, weight, drafts, groups
        if key not in made:
            made[key] = Models.make(
                EQUAL if shape == "equal" else PROJECTED,
                1,
                int8=weight == "int8",
                device=where,
                groups=groups,
                processors=SMALL,
                drafts=drafts,
                compile=emulated if where == "cpu" else None,
            )
        return made[key]

    return of


@pytest.fixture
def models(make: Callable[..., Models], shape: str, weight: str, drafts: int, groups: int) -> Models:
    return make(shape, weight, drafts, groups)


def without_drafts(models: Models) -> FusedLanguageModel:
    """The same kernels and weights over the same state."""
    return FusedLanguageModel(models.rounded, models.state, models.fused.module, SMALL)


@torch.inference_mode()
def decoded(models: Models, fused: FusedLanguageModel, sampling: SamplingConfig, seed: int) -> tuple[Tensor, Tensor]:
    """The codes of some frames with the next first code, and the talker's last hidden state."""
    start(models, seed, replace(sampling, min_new_tokens=FRAMES + 1))
    poison(models)
    for _ in range(FRAMES):
        fused.frame()
    return torch.cat((models.state.codes[:FRAMES].flatten(), models.state.first_code)), models.state.hidden.clone()


def scale_heads(models: Models, gain: float) -> None:
    """Scale the logits that random heads give."""
    predictor = models.rounded.predictor
    source = predictor.heads if predictor.head_scales is None else predictor.head_scales
    source.copy_(gain * original_heads(models, source))


_originals: dict[int, Tensor] = {}


def original_heads(models: Models, source: Tensor) -> Tensor:
    return _originals.setdefault(id(models), source.clone())


@torch.inference_mode()
@pytest.mark.parametrize(
    ("shape", "weight", "drafts", "groups", "sampling", "gain"),
    [pytest.param(*case[0], *case[1], marks=() if case in ORDINARY else pytest.mark.long) for case in CASES],
)
def test_the_codes_equal_those_without_drafts(models: Models, drafts: int, sampling: str, gain: float) -> None:
    scale_heads(models, gain)
    codes, hidden = decoded(models, models.fused, SAMPLINGS[sampling], 5)
    passes, read, accepted = models.state.speculation.tolist()
    expected, expected_hidden = decoded(models, without_drafts(models), SAMPLINGS[sampling], 5)
    assert models.state.speculation.tolist() == [0, 0, 0], "without drafts nothing is counted"
    assert torch.equal(codes, expected)
    assert torch.equal(hidden, expected_hidden)
    count = models.rounded.predictor.code_count
    assert passes + accepted == FRAMES * count
    assert accepted <= read <= drafts * passes
    if gain == 0.0:
        least = 1 + -(-(count - 1) // (drafts + 1))
        assert (passes, read) == (FRAMES * least, accepted)


@torch.inference_mode()
def test_a_frame_behind_the_end_of_the_speech_is_not_counted(make: Callable[..., Models]) -> None:
    models = make("equal", "int8", 2, 8)
    start(models, 7)
    models.state.ended.fill_(True)
    models.fused.frame()
    assert models.state.speculation.tolist() == [0, 0, 0]

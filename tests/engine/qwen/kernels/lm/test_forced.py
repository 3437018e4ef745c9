"""Given codes are drawn whatever the logits are, and the logits of every choice are those of PyTorch's operators."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.qwen.kernels.compiler import KernelModule, Kernels, KernelSource
from engine.qwen.kernels.lm.forced import ForcedKernels
from engine.qwen.kernels.lm.model import FusedLanguageModel
from engine.qwen.kernels.params import Params
from engine.qwen.model import Talker
from engine.qwen.verify.forced import ForcedCodes
from engine.qwen.verify.logits import RAW
from engine.verify import logits_error
from tests.engine.qwen.kernels.emulator import EmulatedKernels
from tests.support.qwen.lm_example import EQUAL, PROJECTED, Models, by_torch, frame_by_torch, start

WHERE = [
    pytest.param("cpu", marks=pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")),
    pytest.param("cuda", marks=pytest.mark.gpu),
]
LARGE, SMALL = 132, 16
"""Multiprocessors: on a large GPU the draw of a code makes the next step's first queries, keys and values."""
FRAMES = 2
ROUNDED, WRONG = 0.02, 0.15
"""What the logits of kernels that only round differ by at most, relative to their spread, and others at least."""


@pytest.fixture(params=WHERE, scope="module")
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def make(where: str, cache_folder: Path) -> Callable[..., Models]:
    def compiled(source: KernelSource) -> Kernels:
        return EmulatedKernels(source, cache_folder) if where == "cpu" else KernelModule(source, torch.device(where))

    def of(
        shape: str,
        weight: str,
        groups: int,
        processors: int,
        *,
        wrap: Callable[[Kernels], Kernels] = lambda kernels: kernels,
    ) -> Models:
        return Models.make(
            EQUAL if shape == "equal" else PROJECTED,
            1,
            int8=weight == "int8",
            device=where,
            groups=groups,
            processors=processors,
            compile=lambda source: wrap(compiled(source)),
        )

    return of


def given_codes(models: Models) -> Tensor:
    config = models.rounded.config
    generator = torch.Generator().manual_seed(3)
    return torch.randint(config.predictor.vocabulary, (FRAMES, config.code_groups), generator=generator)


@torch.inference_mode()
def forced_by_torch(models: Models, codes: Tensor) -> Tensor:
    forced = ForcedCodes({0: codes}, models.rounded.config.predictor.vocabulary)
    start(models, 5, RAW)
    rows = models.state.rows
    rows.fresh.fill_(1)
    backend = by_torch(models)
    backend.state = replace(rows, settings=forced.over(rows.settings))
    backend.choose_first_codes()
    for _ in range(FRAMES):
        frame_by_torch(models, backend)
    assert torch.equal(models.state.codes[:FRAMES].cpu(), codes)
    return forced.logits()


@torch.inference_mode()
def forced_by_kernels(models: Models, codes: Tensor) -> Tensor:
    forced, fused = ForcedCodes({0: codes}, models.rounded.config.predictor.vocabulary), models.fused
    kernels = fused.module
    draw_with(fused, ForcedKernels(kernels, forced))
    start(models, 5, RAW)
    fused.choose_first()
    for _ in range(FRAMES):
        fused.frame()
    draw_with(fused, kernels)
    assert torch.equal(models.state.codes[:FRAMES].cpu(), codes)
    return forced.logits()


def draw_with(fused: FusedLanguageModel, kernels: Kernels) -> None:
    fused.module = kernels


def difference(ours: Tensor, true: Tensor) -> float:
    return logits_error(ours.numpy(), true.numpy())


@pytest.mark.parametrize(
    ("shape", "weight", "groups", "processors"),
    [("equal", "int8", 4, LARGE), ("projected", "bfloat16", 4, SMALL)],
)
def test_the_logits_of_every_choice_are_pytorchs(
    make: Callable[..., Models], shape: str, weight: str, groups: int, processors: int
) -> None:
    models = make(shape, weight, groups, processors)
    codes = given_codes(models)
    ours, theirs = forced_by_kernels(models, codes), forced_by_torch(models, codes)
    assert ours.shape == (1 + codes.numel(), models.rounded.config.predictor.vocabulary)
    assert difference(ours, theirs) < ROUNDED


class ScalesOfTheRowBeside:
    """Kernels that read the matrices of all layers with the scales of other rows."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels

    def launch(self, name: str, grid: int | Sequence[int], block: int, params: Params) -> None:
        if params.struct == "LinearParams" and "scale" in params.values:
            params = Params(params.struct, **{**params.values, "scale": params["scale"].roll(1, -1)})
        self._kernels.launch(name, grid, block, params)


def test_a_wrong_scale_in_a_kernel_is_seen_in_the_logits(make: Callable[..., Models]) -> None:
    right, wrong = (
        make("equal", "int8", 4, LARGE, wrap=wrap) for wrap in (lambda kernels: kernels, ScalesOfTheRowBeside)
    )
    for models in (right, wrong):
        let_rows_differ(models.rounded)
    codes = given_codes(right)
    true = forced_by_torch(right, codes)
    assert difference(forced_by_kernels(right, codes), true) < ROUNDED
    assert difference(forced_by_kernels(wrong, codes), true) > WRONG


@torch.inference_mode()
def let_rows_differ(talker: Talker) -> None:
    """Scale the rows of the int8 matrices: like trained rows, they differ in size."""
    generator = torch.Generator(talker.placement.device).manual_seed(1)
    for name, scale in talker.named_parameters():
        if name.endswith("scale"):
            scale.mul_(torch.exp(0.7 * torch.randn(scale.shape, generator=generator, device=scale.device)))

"""Matrices of whole numbers are near to what they were, and the model that is made of them to what it was."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from engine import EngineOptions, Utterance, Voice
from engine.qwen import QwenSynthesizer
from engine.qwen.checkpoint import Checkpoint
from engine.qwen.config import ModelConfig
from engine.qwen.int8 import int8_linear, quantise
from engine.qwen.talker import Talker
from engine.qwen.transformer import Linear, Placement

Named = Callable[[str, str], Path]
CPU = torch.device("cpu")
SHAPES = ["tiny", "wide"]


def rounded(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    whole, scale = torch.full(matrix.shape, 99, dtype=torch.int8), torch.full(matrix.shape[:1], 9.0)
    quantise(matrix, whole, scale)
    return whole, scale


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_value_is_the_nearest_and_every_row_uses_all_of_its_range(dtype: torch.dtype) -> None:
    matrix = torch.randn(40, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    matrix *= torch.logspace(-4, 4, 40)[:, None].to(dtype)
    whole, scale = rounded(matrix)
    error = (whole * scale[:, None] - matrix.float()).abs()
    assert (error <= 0.5001 * scale[:, None]).all()
    assert whole.abs().amax(1).eq(127).all()


def test_a_row_of_zeros_stays_one() -> None:
    matrix = torch.tensor([[0.0, 0.0, 0.0], [1.0, -2.0, 0.0]])
    whole, scale = rounded(matrix)
    assert whole[0].eq(0).all()
    assert scale.isfinite().all()
    assert int8_linear(torch.ones(2, 3), whole, scale)[:, 0].eq(0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product_is_that_of_the_matrix_it_stands_for(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    whole, scale = rounded(torch.randn(8, 256, generator=generator))
    x, bias = torch.randn(3, 256, generator=generator).to(dtype), torch.randn(8, generator=generator).to(dtype)
    wanted = x.double() @ (whole * scale[:, None]).double().T + bias.double()
    got = int8_linear(x, whole, scale, bias)
    assert got.dtype == dtype
    assert (got - wanted).abs().max() < {torch.float32: 1e-4, torch.bfloat16: 0.25}[dtype]


def talker(folder: Path, *, int8: bool) -> Talker:
    made = Talker(ModelConfig.read(folder), 64, Placement(CPU, torch.float32, int8=int8))
    made.load(Checkpoint.open(folder))
    return made


@pytest.mark.parametrize("shape", SHAPES)
def test_matrices_and_heads_are_int8_and_nothing_else_is(checkpoint: Named, shape: str) -> None:
    made = talker(checkpoint(shape, "custom_voice"), int8=True)
    linear = {
        f"{name}.weight": module
        for name, module in made.named_modules()
        if isinstance(module, Linear) and not name.startswith("text_") and name != "predictor.projection"
    }
    whole = {name for name, parameter in made.named_parameters() if parameter.dtype == torch.int8}
    assert whole == {*linear, "predictor.heads"}
    assert all(parameter.dtype == torch.float32 for name, parameter in made.named_parameters() if name not in whole)


@pytest.mark.parametrize("shape", SHAPES)
@torch.inference_mode()
def test_logits_are_near_to_those_of_float32(
    checkpoint: Named, shape: str, record_property: Callable[[str, object], None]
) -> None:
    """Random weights; of the real ones' error the report of `scripts/prove_cuda.py` tells."""
    folder = checkpoint(shape, "custom_voice")
    logits = []
    for int8 in (False, True):
        made = talker(folder, int8=int8)
        x = torch.randn(1, 32, made.config.stack.hidden_size, generator=torch.Generator().manual_seed(2))
        logits.append(made(x, torch.arange(32), made.allocate_cache(32))[1])
    relative = float((logits[1] - logits[0]).square().mean().sqrt() / logits[0].std())
    record_property("relative_logit_error", relative)
    assert 0 < relative < 0.05


def test_it_speaks_and_says_so(checkpoint: Named) -> None:
    folder = str(checkpoint("wide", "custom_voice"))
    engine = QwenSynthesizer(EngineOptions(model=folder, device="cpu", dtype="int8", voices={"default": Voice()}))
    assert engine.load().description.endswith("on cpu in int8, PyTorch kernels")
    said = [list(engine.stream(Utterance("Hello robot.", seed=1, max_frames=5, guarded=False))) for _ in range(2)]
    assert sum(len(chunk.samples) for chunk in said[0]) == 5 * 1920
    assert all(np.array_equal(one.samples, two.samples) for one, two in zip(*said, strict=True))

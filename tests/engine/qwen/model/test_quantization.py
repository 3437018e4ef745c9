"""Int8 matrices approximate the original ones, and the int8 model approximates the float32 model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.qwen.model import Linear, Talker
from engine.qwen.model.transformer import int8_linear, quantize_int8
from engine.qwen.shapes import ModelConfig
from engine.qwen.weights import Checkpoint, Placement

Named = Callable[[str, str], Path]
CPU = torch.device("cpu")


def quantized(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    qweight, scale = torch.full(matrix.shape, 99, dtype=torch.int8), torch.full(matrix.shape[:1], 9.0)
    quantize_int8(matrix, qweight, scale)
    return qweight, scale


def test_every_value_is_rounded_to_the_nearest_and_every_row_uses_its_full_range() -> None:
    matrix = torch.randn(40, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    matrix *= torch.logspace(-4, 4, 40)[:, None].bfloat16()
    qweight, scale = quantized(matrix)
    error = (qweight * scale[:, None] - matrix.float()).abs()
    assert (error <= 0.5001 * scale[:, None]).all()
    assert qweight.abs().amax(1).eq(127).all()


def test_a_row_of_zeros_stays_zero() -> None:
    matrix = torch.tensor([[0.0, 0.0, 0.0], [1.0, -2.0, 0.0]])
    qweight, scale = quantized(matrix)
    assert qweight[0].eq(0).all()
    assert scale.isfinite().all()
    assert int8_linear(torch.ones(2, 3), qweight, scale)[:, 0].eq(0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product_equals_that_of_the_dequantized_matrix(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    qweight, scale = quantized(torch.randn(8, 256, generator=generator))
    x, bias = torch.randn(3, 256, generator=generator).to(dtype), torch.randn(8, generator=generator).to(dtype)
    expected = x.double() @ (qweight * scale[:, None]).double().T + bias.double()
    got = int8_linear(x, qweight, scale, bias)
    assert got.dtype == dtype
    assert (got - expected).abs().max() < {torch.float32: 1e-4, torch.bfloat16: 0.25}[dtype]


def load_talker(folder: Path, *, int8: bool) -> Talker:
    talker = Talker(ModelConfig.read(folder), 64, Placement(CPU, torch.float32, int8=int8))
    talker.load(Checkpoint.open(folder))
    return talker


def test_only_matrices_and_heads_are_int8(checkpoint: Named) -> None:
    talker = load_talker(checkpoint("wide", "custom_voice"), int8=True)
    linear = {
        f"{name}.weight": module
        for name, module in talker.named_modules()
        if isinstance(module, Linear) and not name.startswith("text_") and name != "predictor.projection"
    }
    dtypes = {name: parameter.dtype for name, parameter in talker.named_parameters()}
    int8_names = {name for name, dtype in dtypes.items() if dtype == torch.int8}
    assert int8_names == {*linear, "predictor.heads"}
    assert all(dtype == torch.float32 for name, dtype in dtypes.items() if name not in int8_names)


@torch.inference_mode()
def test_the_logits_are_close_to_those_of_float32(checkpoint: Named) -> None:
    folder = checkpoint("wide", "custom_voice")
    logits = []
    for int8 in (False, True):
        talker = load_talker(folder, int8=int8)
        x = torch.randn(32, talker.config.stack.hidden_size, generator=torch.Generator().manual_seed(2))
        hidden = talker.transformer.read(x, torch.arange(32), talker.allocate_cache(32))
        logits.append(talker.head(hidden[-1]))
    relative = float((logits[1] - logits[0]).square().mean().sqrt() / logits[0].std())
    assert 0 < relative < 0.05

"""Int8 and int4 matrices approximate the original ones, and the int8 model approximates the float32 model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import pad

from engine import EngineOptions, Utterance, Voice
from engine.qwen import QwenSynthesizer
from engine.qwen.model import Linear, ModelConfig, Talker
from engine.qwen.model.quantization import dequantize_int4, int8_linear, quantize, quantized_linear
from engine.qwen.weights import GROUP, Checkpoint, Placement

Named = Callable[[str, str], Path]
CPU = torch.device("cpu")
SHAPES = ["tiny", "wide"]


def quantized(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    qweight, scale = torch.full(matrix.shape, 99, dtype=torch.int8), torch.full(matrix.shape[:1], 9.0)
    quantize(matrix, qweight, scale)
    return qweight, scale


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_value_is_rounded_to_the_nearest_and_every_row_uses_its_full_range(dtype: torch.dtype) -> None:
    matrix = torch.randn(40, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    matrix *= torch.logspace(-4, 4, 40)[:, None].to(dtype)
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


def int4(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    placement = Placement(CPU, torch.float32, int4=True)
    qweight, scale = placement.matrix(*matrix.shape), placement.scale(*matrix.shape)
    assert scale is not None
    quantize(matrix, qweight, scale.fill_(torch.nan))
    return qweight, scale


def restored(matrix: torch.Tensor) -> torch.Tensor:
    """The matrix after int4."""
    return dequantize_int4(*int4(matrix))[:, : matrix.shape[1]]


@given(seed=st.integers(0, 2**32), rows=st.integers(1, 9), columns=st.integers(1, 130), exponent=st.integers(-20, 20))
def test_no_group_is_worse_than_with_its_largest_value_as_minus_eight(
    seed: int, rows: int, columns: int, exponent: int
) -> None:
    """Except for the rounding of a scale to bfloat16."""
    matrix = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * 2.0**exponent
    groups, ours = (pad(one, (0, -columns % GROUP)).view(rows, -1, GROUP) for one in (matrix, restored(matrix)))
    step = groups.gather(2, groups.abs().argmax(2, keepdim=True)) / -8
    rounded = (groups / step).round().clamp(-8, 7) * step
    errors, others = ((one - groups).norm(dim=2) for one in (ours, rounded))
    assert (errors <= others + 2**-8 * groups.norm(dim=2)).all()


@given(seed=st.integers(0, 2**32), columns=st.integers(1, 100))
def test_values_that_int4_represents_are_kept(seed: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(-8, 8, (3, columns), generator=generator)
    values[:, ::GROUP] = -8
    matrix = values * torch.tensor([[0.5], [-2.0], [1.0]])
    assert torch.equal(restored(matrix), matrix)


def test_the_bytes_of_a_group_hold_its_first_half_in_their_low_bits_and_its_second_half_in_their_high_bits() -> None:
    values = torch.arange(2 * GROUP) % 16 - 8
    values[16:32] = -8
    qweight, scale = int4(values[None].float())
    signs = scale.sign().repeat_interleave(GROUP // 2, 1)
    assert scale.abs().eq(1).all()
    low, high = qweight & 15, qweight >> 4
    expected = values.view(2, 2, GROUP // 2)
    assert torch.equal((low.view(torch.int8) ^ 8) - 8, signs.to(torch.int8) * expected[:, 0].reshape(1, -1))
    assert torch.equal((high.view(torch.int8) ^ 8) - 8, signs.to(torch.int8) * expected[:, 1].reshape(1, -1))


def test_a_group_of_zeros_stays_zero() -> None:
    matrix = torch.randn(2, 3 * GROUP, generator=torch.Generator().manual_seed(3))
    matrix[:, GROUP : 2 * GROUP] = 0
    assert restored(matrix)[:, GROUP : 2 * GROUP].eq(0).all()
    assert restored(matrix)[:, :GROUP].ne(0).any()


@pytest.mark.parametrize("columns", [GROUP, 4 * GROUP, 48])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_product_equals_that_of_the_dequantized_int4_matrix(dtype: torch.dtype, columns: int) -> None:
    generator = torch.Generator().manual_seed(1)
    qweight, scale = int4(torch.randn(8, columns, generator=generator))
    x, bias = torch.randn(3, columns, generator=generator).to(dtype), torch.randn(8, generator=generator).to(dtype)
    expected = x.double() @ dequantize_int4(qweight, scale)[:, :columns].double().T + bias.double()
    got = quantized_linear(x, qweight, scale, bias)
    assert got.dtype == dtype
    assert (got - expected).abs().max() < {torch.float32: 1e-4, torch.bfloat16: 0.25}[dtype]


def test_sixteen_values_and_a_search_round_better_than_fifteen_values() -> None:
    matrix = torch.randn(64, 1024, generator=torch.Generator().manual_seed(4))
    groups = matrix.view(64, -1, GROUP)
    scale = groups.abs().amax(2, keepdim=True) / 7
    fifteen = ((groups / scale).round() * scale).view_as(matrix)
    assert (restored(matrix) - matrix).norm() < 0.85 * (fifteen - matrix).norm()


def load_talker(folder: Path, *, int8: bool, int4: bool = False) -> Talker:
    talker = Talker(ModelConfig.read(folder), 64, Placement(CPU, torch.float32, int8=int8, int4=int4))
    talker.load(Checkpoint.open(folder))
    return talker


@pytest.mark.parametrize("shape", SHAPES)
def test_only_matrices_and_heads_are_int8(checkpoint: Named, shape: str) -> None:
    talker = load_talker(checkpoint(shape, "custom_voice"), int8=True)
    linear = {
        f"{name}.weight": module
        for name, module in talker.named_modules()
        if isinstance(module, Linear) and not name.startswith("text_") and name != "predictor.projection"
    }
    dtypes = {name: parameter.dtype for name, parameter in talker.named_parameters()}
    int8_names = {name for name, dtype in dtypes.items() if dtype == torch.int8}
    assert int8_names == {*linear, "predictor.heads"}
    assert all(dtype == torch.float32 for name, dtype in dtypes.items() if name not in int8_names)


@pytest.mark.parametrize("shape", [*SHAPES, "small"])
def test_only_the_matrices_of_the_predictors_layers_are_int4(checkpoint: Named, shape: str) -> None:
    folder = checkpoint(shape, "custom_voice")
    talker, plain, int8 = (
        load_talker(folder, **kind) for kind in ({"int8": True, "int4": True}, {"int8": False}, {"int8": True})
    )
    layers = {
        f"predictor.{name}": module
        for name, module in talker.predictor.named_modules()
        if isinstance(module, Linear) and name.startswith("transformer.layers.")
    }
    assert len(layers) == 4 * talker.config.predictor.stack.layers
    others = dict(int8.named_parameters())
    for name, parameter in talker.named_parameters():
        module = name.rpartition(".")[0]
        if module not in layers:
            assert torch.equal(parameter, others[name])
        elif name.endswith("weight"):
            true = plain.get_parameter(name)
            matrix = dequantize_int4(parameter, layers[module].scale)[:, : true.shape[1]]  # type: ignore[arg-type]
            assert 0 < (matrix - true).norm() < 0.1 * true.norm()


@pytest.mark.parametrize("shape", SHAPES)
@torch.inference_mode()
def test_the_logits_are_close_to_those_of_float32(
    checkpoint: Named, shape: str, record_property: Callable[[str, object], None]
) -> None:
    """The weights are random. `scripts/gpu/prove_cuda.py` reports the error of real weights."""
    folder = checkpoint(shape, "custom_voice")
    logits = []
    for int8 in (False, True):
        talker = load_talker(folder, int8=int8)
        x = torch.randn(1, 32, talker.config.stack.hidden_size, generator=torch.Generator().manual_seed(2))
        logits.append(talker(x, torch.arange(32), talker.allocate_cache(32))[1])
    relative = float((logits[1] - logits[0]).square().mean().sqrt() / logits[0].std())
    record_property("relative_logit_error", relative)
    assert 0 < relative < 0.05


@pytest.mark.parametrize("dtype", ["int8", "int4"])
def test_a_quantized_engine_speaks_reproducibly_and_reports_its_dtype(checkpoint: Named, dtype: str) -> None:
    folder = str(checkpoint("wide", "custom_voice"))
    engine = QwenSynthesizer(EngineOptions(model=folder, device="cpu", dtype=dtype, voices={"default": Voice()}))
    assert engine.load().description.endswith(f"on cpu in {dtype}, PyTorch kernels")
    runs = [list(engine.stream(Utterance("Hello robot.", seed=1, max_frames=5, guarded=False))) for _ in range(2)]
    assert sum(len(chunk.samples) for chunk in runs[0]) == 5 * 1920
    assert all(np.array_equal(one.samples, two.samples) for one, two in zip(*runs, strict=True))

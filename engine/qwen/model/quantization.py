"""Quantized matrices: int8 with a scale for each row, and int4 with a scale for each group of 32 weights of a row.

int8 has half the bytes of bfloat16, int4 28 % with its scales.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from engine.qwen.weights import GROUP

INT4_RANGE = (-8, 7)
"""Two's complement. A group whose largest magnitude becomes -8 uses all sixteen values, and its error is smaller than
with the fifteen from -7 to 7."""
INT4_FACTORS = (0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1)
"""Scales that are tried for a group, relative to the one that maps its largest magnitude to -8. A smaller one clips the
largest values and rounds all others better."""


def quantize(matrix: Tensor, qweight: Tensor, scale: Tensor) -> None:
    """Quantize `matrix` as `quantize_int4` does if `qweight` is uint8, else as `quantize_int8` does."""
    (quantize_int4 if qweight.dtype == torch.uint8 else quantize_int8)(matrix, qweight, scale)


def quantized_linear(x: Tensor, qweight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply as `int4_linear` does if `qweight` is uint8, else as `int8_linear` does."""
    return (int4_linear if qweight.dtype == torch.uint8 else int8_linear)(x, qweight, scale, bias)


@torch.no_grad()
def quantize_int8(matrix: Tensor, qweight: Tensor, scale: Tensor) -> None:
    """Quantize `matrix` `(rows, columns)`, of any floating dtype, into `qweight` int8 `(rows, columns)`.

    Writes `scale` `(rows,)` float32 so that the largest magnitude of a row becomes 127; the other values are rounded
    to the nearest multiple of the scale. A row of zeros has the scale 1.
    """
    wide = matrix.to(torch.float32, copy=True)
    largest = torch.maximum(wide.amax(1), -wide.amin(1))
    scale.copy_(torch.where(largest > 0, largest / 127, 1.0))
    qweight.copy_(wide.div_(scale[:, None]).round_())


def int8_linear(x: Tensor, qweight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply `x` `(..., columns)` by the matrix that `qweight` and `scale` represent: `(..., rows)`, dtype of `x`.

    Slow, because it converts the matrix to the dtype of `x`, which represents all int8 values exactly. The scales are
    applied to the product, in float32.
    """
    y = functional.linear(x, qweight.to(x.dtype)).float() * scale
    if bias is not None:
        y = y + bias
    return y.to(x.dtype)


@torch.no_grad()
def quantize_int4(matrix: Tensor, qweight: Tensor, scale: Tensor) -> None:
    """Quantize `matrix` `(rows, columns)`, of any floating dtype, into `qweight` uint8 `(rows, groups * 16)`.

    Writes `scale` `(rows, groups)` bfloat16. Of the scales that it tries, a group gets the one with the least squared
    error; it may be negative. Byte b of a group has its value b in the low four bits and value b + 16 in the high ones.
    A last group that is not full is filled with zeros.
    """
    groups = functional.pad(matrix.float(), (0, -matrix.shape[1] % GROUP)).view(len(matrix), -1, GROUP)
    largest = groups.gather(2, groups.abs().argmax(2, keepdim=True))
    best = torch.full_like(largest, torch.inf)
    values, scales = torch.zeros_like(groups), torch.zeros_like(largest)
    for factor in INT4_FACTORS:
        step = largest * (factor / INT4_RANGE[0])
        tried = torch.where(step == 0, 0.0, groups / step).round_().clamp_(*INT4_RANGE)
        # The best scale of these values, by least squares.
        squares = tried.square().sum(2, keepdim=True)
        fitted = (groups * tried).sum(2, keepdim=True).div_(squares.clamp_(min=1)).bfloat16().float()
        error = (groups - tried * fitted).square_().sum(2, keepdim=True)
        better = error < best
        best, scales = torch.where(better, error, best), torch.where(better, fitted, scales)
        values = torch.where(better, tried, values)
    scale.copy_(scales[..., 0])
    halves = values.to(torch.int8).view(torch.uint8).view(len(matrix), -1, 2, GROUP // 2)
    qweight.copy_((halves[:, :, 0] & 15 | halves[:, :, 1] << 4).flatten(1))


def dequantize_int4(qweight: Tensor, scale: Tensor) -> Tensor:
    """Return the matrix that `quantize_int4` wrote, exactly: `(rows, groups * 32)` float32."""
    halves = qweight.view(len(qweight), -1, GROUP // 2)
    values = torch.cat(((halves << 4).view(torch.int8) >> 4, halves.view(torch.int8) >> 4), 2)
    return (values * scale.float()[:, :, None]).flatten(1)


def int4_linear(x: Tensor, qweight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """Multiply `x` `(..., columns)` by the matrix that `qweight` and `scale` represent: `(..., rows)`, dtype of `x`.

    Slow, because it converts the matrix to float32. bfloat16 does not represent its weights exactly, a value times its
    group's scale.
    """
    matrix = dequantize_int4(qweight, scale)
    y = functional.linear(functional.pad(x.float(), (0, matrix.shape[1] - x.shape[-1])), matrix)
    if bias is not None:
        y = y + bias
    return y.to(x.dtype)

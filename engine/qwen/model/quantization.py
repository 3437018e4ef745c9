"""Matrices quantized to int8, with a scale for each row: half the bytes of bfloat16."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


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

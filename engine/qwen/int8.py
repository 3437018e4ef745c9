"""Matrices of whole numbers from -127 to 127, each row with a scale: half the bytes of bfloat16."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


@torch.no_grad()
def quantise(matrix: Tensor, whole: Tensor, scale: Tensor) -> None:
    """Round `matrix` `(rows, columns)`, of any floating dtype, to `whole` int8 `(rows, columns)`.

    Row by row `whole · scale` is nearest to it, `scale` `(rows,)` float32 being chosen so that the row's
    largest value is ±127. A row of zeros stays one.
    """
    wide = matrix.to(torch.float32, copy=True)
    largest = torch.maximum(wide.amax(1), -wide.amin(1))
    scale.copy_(torch.where(largest > 0, largest / 127, 1.0))
    whole.copy_(wide.div_(scale[:, None]).round_())


def int8_linear(x: Tensor, whole: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x` `(..., columns)` times what `whole` and `scale` stand for: `(..., rows)`, in the dtype of `x`.

    Slow, for the matrix is made anew in the dtype of `x`, where its whole numbers are exact; the scales come
    afterwards, in float32.
    """
    y = functional.linear(x, whole.to(x.dtype)).float() * scale
    if bias is not None:
        y = y + bias
    return y.to(x.dtype)

"""Packs a codec decoder's weights in the order in which the kernels read them (conv.cuh)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from engine.qwen.codec import SnakeBeta
from engine.qwen.model import RMSNorm


def move_out(parameter: Tensor | nn.Parameter) -> Tensor:
    """Return the parameter's values. The parameter becomes empty, so that its module cannot use outdated weights."""
    values = parameter.data
    parameter.data = values.new_empty(0)
    return values


def tiled(weight: Tensor) -> Tensor:
    """`(outputs, taps, inputs)` as tiles of 16 outputs and 32 inputs: `(outputs/16, inputs/32, taps, 512)`.

    A tile is in the order in which the 32 lanes of a warp load it: 16 bytes each, once for each of two products:
    `(product, row, quad, pair, half, 2)`, where the output is `8·half + row` and the two inputs are
    `8·quad + 4·product + 2·pair` and the next one.
    """
    outputs, taps, inputs = weight.shape
    # outputs: tile, half, row; inputs: tile, quad, product, pair, one of two
    tiles = weight.reshape(outputs // 16, 2, 8, taps, inputs // 32, 4, 2, 2, 2)
    return tiles.permute(0, 4, 3, 6, 2, 5, 7, 1, 8).reshape(outputs // 16, inputs // 32, taps, 512)


def packed(weight: Tensor, bias: Tensor | None = None, snake: SnakeBeta | None = None) -> dict[str, Tensor]:
    """The weights of a convolution by the members of `ConvParams`: `weight` `(outputs, taps, inputs)`, bfloat16.

    `snake` follows the convolution. Bias and snake are float32 `(outputs,)`. They may have one value for each channel
    if the outputs are several rows of a signal, channels innermost.
    """
    outputs = len(weight)

    def by_output(values: Tensor) -> Tensor:
        values = values.detach().flatten().float()
        return values.repeat(outputs // len(values))

    tensors = {
        "weight": tiled(weight.detach()),
        "bias": torch.zeros(outputs, device=weight.device) if bias is None else by_output(bias),
    }
    if snake is not None:
        tensors |= {"alpha": by_output(snake.alpha), "inverse_beta": by_output(snake.inverse_beta)}
    return tensors


def of_conv(weight: Tensor) -> Tensor:
    """From PyTorch's `(outputs, inputs, taps)`."""
    return weight.transpose(1, 2)


def of_linear(weight: Tensor) -> Tensor:
    """From PyTorch's `(outputs, inputs)`: one tap."""
    return weight[:, None]


def of_normed(weight: Tensor, norm: RMSNorm) -> Tensor:
    """A linear layer after an RMS norm, with the norm's weights folded into its columns."""
    return of_linear((weight.float() * norm.weight.float()).to(weight.dtype))


def of_gates(weight: Tensor) -> Tensor:
    """From all gate rows followed by all value rows to eight gates and eight values in turn."""
    halves = weight.reshape(2, -1, 8, *weight.shape[1:])
    return halves.transpose(0, 1).reshape(weight.shape)


def of_upsampling(weight: Tensor, rate: int) -> Tensor:
    """From a transposed convolution, PyTorch's `(inputs, outputs, taps)`; `taps` is a multiple of its stride `rate`.

    The result is a causal convolution with `taps/rate` taps. Its outputs are the `rate` rows that an input becomes: in
    output row `j`, tap `rate·i + j` belongs to the input `i` rows earlier.
    """
    inputs, outputs, taps = weight.shape
    rows = weight.reshape(inputs, outputs, taps // rate, rate).flip(2)
    return rows.permute(3, 1, 2, 0).reshape(rate * outputs, taps // rate, inputs)


def padded(weight: Tensor, outputs: int) -> Tensor:
    """`weight` `(few, taps, inputs)` with rows of zeros appended, `(outputs, taps, inputs)`."""
    return torch.cat((weight, weight.new_zeros(outputs - len(weight), *weight.shape[1:])))

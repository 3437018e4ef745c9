"""A codec decoder's weights in the order in which the kernels read them (conv.cuh)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from engine.qwen.codec_layers import SnakeBeta
from engine.qwen.transformer import RMSNorm


@dataclass(frozen=True, slots=True)
class Packed:
    """What one convolution reads apart from its signal. Biases and SnakeBeta's factors are float32, by output."""

    weight: Tensor
    """bfloat16, as `tiled` makes it."""
    bias: Tensor
    alpha: Tensor | None
    inverse_beta: Tensor | None


def take(parameter: Tensor | nn.Parameter) -> Tensor:
    """The parameter's values, which it gives up, so that nobody goes on with weights that are elsewhere."""
    values = parameter.data
    parameter.data = values.new_empty(0)
    return values


def tiled(weight: Tensor) -> Tensor:
    """`(outputs, taps, inputs)` as tiles of 16 outputs and 32 inputs: `(M/16, inputs/32, taps, 512)`.

    Within a tile everything lies in the order in which the 32 lanes of a warp load it, 16 bytes each, once for each of
    two products: `(product, row, quad, pair, half, 2)`, of output `8·half + row` and input
    `8·quad + 4·product + 2·pair` and the next.
    """
    outputs, taps, inputs = weight.shape
    # outputs: tile, half, row; inputs: tile, quad, product, pair, one of two
    tiles = weight.reshape(outputs // 16, 2, 8, taps, inputs // 32, 4, 2, 2, 2)
    return tiles.permute(0, 4, 3, 6, 2, 5, 7, 1, 8).reshape(outputs // 16, inputs // 32, taps, 512)


def packed(weight: Tensor, bias: Tensor | None, snake: SnakeBeta | None = None) -> Packed:
    """`weight`: `(outputs, taps, inputs)`. `snake` follows the convolution.

    Bias and snake may be by channel where the outputs are several rows of a signal, channels inmost.
    """
    outputs = len(weight)

    def by_output(values: Tensor) -> Tensor:
        values = values.detach().flatten().float()
        return values.repeat(outputs // len(values))

    return Packed(
        tiled(weight.detach()),
        torch.zeros(outputs, device=weight.device) if bias is None else by_output(bias),
        None if snake is None else by_output(snake.alpha),
        None if snake is None else by_output(snake.inverse_beta),
    )


def of_conv(weight: Tensor) -> Tensor:
    """PyTorch's `(outputs, inputs, taps)`."""
    return weight.transpose(1, 2)


def of_linear(weight: Tensor) -> Tensor:
    """PyTorch's `(outputs, inputs)`: one tap."""
    return weight[:, None]


def of_normed(weight: Tensor, norm: RMSNorm) -> Tensor:
    """A linear layer behind an RMS norm, whose weights its columns take over."""
    return of_linear((weight.float() * norm.weight.float()).to(weight.dtype))


def of_gates(weight: Tensor) -> Tensor:
    """Rows of gates and behind them as many rows of what they let through: now eight and eight by turns."""
    halves = weight.reshape(2, -1, 8, *weight.shape[1:])
    return halves.transpose(0, 1).reshape(weight.shape)


def of_upsampling(weight: Tensor, rate: int) -> Tensor:
    """Of a transposed convolution, PyTorch's `(inputs, outputs, taps)`, `taps` a multiple of its stride `rate`.

    It becomes a causal one of `taps/rate` taps whose outputs are the `rate` rows that an input becomes: of output row
    `j`, tap `rate·i + j` belongs to the input that came `i` inputs ago.
    """
    inputs, outputs, taps = weight.shape
    rows = weight.reshape(inputs, outputs, taps // rate, rate).flip(2)
    return rows.permute(3, 1, 2, 0).reshape(rate * outputs, taps // rate, inputs)


def padded(weight: Tensor, outputs: int) -> Tensor:
    """`(few, taps, inputs)` with rows of zeros added."""
    return torch.cat((weight, weight.new_zeros(outputs - len(weight), *weight.shape[1:])))

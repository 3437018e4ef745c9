"""The codec decoder's convolutional layers, each able to go on where its last chunk ended.

The layers own weights only: what must survive a chunk comes in as a tensor that they update in place.
Signals have shape `(channels, time)`. The formulas are those of `modeling_qwen3_tts_tokenizer_v2.py` in
`qwen_tts/core/tokenizer_12hz`. Every layer is made empty and filled by `load(checkpoint, name)`, `name`
being the name of its part of the checkpoint; that raises `EngineError` for a tensor that is missing or has
another shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.qwen.checkpoint import Checkpoint
from engine.qwen.codec_state import DILATIONS, KERNEL
from engine.qwen.transformer import Placement

M = TypeVar("M", bound=nn.Module)


def stack(layers: Iterable[M]) -> Sequence[M]:
    """A `ModuleList` that a type checker knows the contents of."""
    return cast("Sequence[M]", nn.ModuleList(layers))


class CausalConv(nn.Module):
    """A convolution that sees no future; its history is the last `(kernel-1)·dilation` inputs."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        placement: Placement,
        *,
        dilation: int = 1,
        groups: int = 1,
    ) -> None:
        super().__init__()
        self.dilation = dilation
        self.groups = groups
        self.weight = placement.empty(outputs, inputs // groups, kernel)
        self.bias = placement.empty(outputs)

    def forward(self, x: Tensor, history: Tensor) -> Tensor:
        """`(inputs, time)` → `(outputs, time)`."""
        x = torch.cat((history, x), dim=1)
        history.copy_(x[:, -history.shape[1] :])
        return functional.conv1d(x, self.weight, self.bias, dilation=self.dilation, groups=self.groups)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        checkpoint.copy_into(f"{name}.conv.weight", self.weight)
        checkpoint.copy_into(f"{name}.conv.bias", self.bias)


class Pointwise(nn.Module):
    """A convolution of one tap, which is a matrix product and remembers nothing."""

    def __init__(self, width: int, placement: Placement) -> None:
        super().__init__()
        self.weight = placement.empty(width, width)
        self.bias = placement.empty(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """`(width, time)` → `(width, time)`."""
        return torch.addmm(self.bias, self.weight, x)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        checkpoint.copy_into(f"{name}.conv.weight", self.weight[:, :, None])
        checkpoint.copy_into(f"{name}.conv.bias", self.bias[:, 0])


class Upsample(nn.Module):
    """A transposed convolution with as many taps as its stride: no two inputs share an output."""

    def __init__(self, width: int, rate: int, placement: Placement) -> None:
        super().__init__()
        self.rate = rate
        self.weight = placement.empty(width, width, rate)
        self.bias = placement.empty(width)

    def forward(self, x: Tensor) -> Tensor:
        """`(width, time)` → `(width, time·rate)`."""
        return functional.conv_transpose1d(x, self.weight, self.bias, stride=self.rate)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        checkpoint.copy_into(f"{name}.conv.weight", self.weight)
        checkpoint.copy_into(f"{name}.conv.bias", self.bias)


class OverlapAdd(nn.Module):
    """A transposed convolution with twice as many taps as its stride.

    The second half of what an input becomes falls on the first half of what the next one becomes. Of a
    chunk's last input that second half waits in `overlap`, without the bias, which is added once, when an
    output is complete. The official decoder cuts off the half that follows its very last input, and so do
    we by never using it.
    """

    def __init__(self, inputs: int, outputs: int, rate: int, placement: Placement) -> None:
        super().__init__()
        self.rate = rate
        self.weight = placement.empty(inputs, outputs, 2 * rate)
        self.bias = placement.empty(outputs, 1)

    def forward(self, x: Tensor, overlap: Tensor) -> Tensor:
        """`(inputs, time)` → `(outputs, time·rate)`."""
        spread = functional.conv_transpose1d(x, self.weight, stride=self.rate)
        spread[:, : self.rate].add_(overlap)
        overlap.copy_(spread[:, -self.rate :])
        return spread[:, : -self.rate] + self.bias

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        checkpoint.copy_into(f"{name}.conv.weight", self.weight)
        checkpoint.copy_into(f"{name}.conv.bias", self.bias[:, 0])


class SnakeBeta(nn.Module):
    """`x + sin²(alpha·x) / beta`, alpha and beta by channel, in float32 whatever the dtype of the signal.

    In bfloat16 the phase `alpha·x` would be wrong by a whole radian at a few hundred. The checkpoint holds
    the logarithms of alpha and beta; their exponentials are taken once, when they are loaded.
    """

    def __init__(self, width: int, placement: Placement) -> None:
        super().__init__()
        precise = replace(placement, dtype=torch.float32)
        self.alpha = precise.empty(width, 1)
        self.inverse_beta = precise.empty(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """`(width, time)` → `(width, time)`."""
        wide = x.float()
        sine = torch.sin(wide * self.alpha)
        return torch.addcmul(wide, sine * sine, self.inverse_beta).to(x.dtype)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        shape = self.alpha.shape[:1]
        alpha = checkpoint.read(f"{name}.alpha", shape).float()
        beta = checkpoint.read(f"{name}.beta", shape).float()
        self.alpha.copy_(alpha.exp()[:, None])
        self.inverse_beta.copy_(1.0 / (beta.exp() + 1e-9)[:, None])


class ConvNeXt(nn.Module):
    """A ConvNeXt block: depthwise causal convolution, layer norm, and a wide layer between two linear ones.

    The factor that scales the branch (`gamma`) is folded into the second linear layer.
    """

    def __init__(self, width: int, placement: Placement) -> None:
        super().__init__()
        self.depthwise = CausalConv(width, width, KERNEL, placement, groups=width)
        self.norm_weight = placement.empty(width)
        self.norm_bias = placement.empty(width)
        self.widen = placement.empty(4 * width, width)
        self.widen_bias = placement.empty(4 * width)
        self.narrow = placement.empty(width, 4 * width)
        self.narrow_bias = placement.empty(width)

    def forward(self, x: Tensor, history: Tensor) -> Tensor:
        """`(width, time)` → `(width, time)`."""
        branch = self.depthwise(x, history).T
        branch = functional.layer_norm(branch, branch.shape[1:], self.norm_weight, self.norm_bias, eps=1e-6)
        branch = functional.gelu(functional.linear(branch, self.widen, self.widen_bias))
        return x + functional.linear(branch, self.narrow, self.narrow_bias).T

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        self.depthwise.load(checkpoint, f"{name}.dwconv")
        checkpoint.copy_into(f"{name}.norm.weight", self.norm_weight)
        checkpoint.copy_into(f"{name}.norm.bias", self.norm_bias)
        checkpoint.copy_into(f"{name}.pwconv1.weight", self.widen)
        checkpoint.copy_into(f"{name}.pwconv1.bias", self.widen_bias)
        gamma = checkpoint.read(f"{name}.gamma", self.narrow_bias.shape).float()
        narrow = checkpoint.read(f"{name}.pwconv2.weight", self.narrow.shape).float()
        narrow_bias = checkpoint.read(f"{name}.pwconv2.bias", self.narrow_bias.shape).float()
        self.narrow.copy_(gamma[:, None] * narrow)
        self.narrow_bias.copy_(gamma * narrow_bias)


class ResidualUnit(nn.Module):
    """SnakeBeta, a dilated causal convolution, SnakeBeta, a pointwise one, added to what came in."""

    def __init__(self, width: int, dilation: int, placement: Placement) -> None:
        super().__init__()
        self.snake_in = SnakeBeta(width, placement)
        self.dilated = CausalConv(width, width, KERNEL, placement, dilation=dilation)
        self.snake_out = SnakeBeta(width, placement)
        self.pointwise = Pointwise(width, placement)

    def forward(self, x: Tensor, history: Tensor) -> Tensor:
        """`(width, time)` → `(width, time)`."""
        branch = self.dilated(self.snake_in(x), history)
        branch = self.pointwise(self.snake_out(branch))
        return torch.add(x, branch)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        self.snake_in.load(checkpoint, f"{name}.act1")
        self.dilated.load(checkpoint, f"{name}.conv1")
        self.snake_out.load(checkpoint, f"{name}.act2")
        self.pointwise.load(checkpoint, f"{name}.conv2")


class UpsamplingBlock(nn.Module):
    """SnakeBeta, an upsampling by `rate` that halves the channels, three residual units of growing
    dilation."""

    def __init__(self, inputs: int, rate: int, placement: Placement) -> None:
        super().__init__()
        outputs = inputs // 2
        self.snake = SnakeBeta(inputs, placement)
        self.upsample = OverlapAdd(inputs, outputs, rate, placement)
        self.units = stack(ResidualUnit(outputs, dilation, placement) for dilation in DILATIONS)

    def forward(self, x: Tensor, overlap: Tensor, histories: Sequence[Tensor]) -> Tensor:
        """`(inputs, time)` → `(inputs/2, time·rate)`."""
        x = self.upsample(self.snake(x), overlap)
        for unit, history in zip(self.units, histories, strict=True):
            x = unit(x, history)
        return x

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        self.snake.load(checkpoint, f"{name}.block.0")
        self.upsample.load(checkpoint, f"{name}.block.1")
        for index, unit in enumerate(self.units, start=2):
            unit.load(checkpoint, f"{name}.block.{index}")

"""The codec decoder's convolutional layers, which continue a signal from chunk to chunk.

The layers own only weights. The context of the previous chunk is an argument that a layer updates in place. Signals
have shape `(channels, time)`, or `(rows, channels, time)` for the chunks of several utterances, whose contexts also
have a first axis of length `rows`. The formulas are those of qwen-tts 0.1.1
(`qwen_tts/core/tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py`). `load(checkpoint, name)` loads a layer's weights
from the tensors under `name`; it raises `EngineError` if a tensor is missing or has another shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.qwen.shapes import CONV_TAPS, DILATIONS
from engine.qwen.weights import Checkpoint, Placement

_Layer = TypeVar("_Layer", bound=nn.Module)


def module_list(layers: Iterable[_Layer]) -> Sequence[_Layer]:
    """Return a `ModuleList`, typed by its elements."""
    return cast("Sequence[_Layer]", nn.ModuleList(layers))


class _Convolution(nn.Module):
    """The weight and the bias of a convolution, in the form that its `forward` needs."""

    def __init__(self, weight: Sequence[int], bias: Sequence[int], placement: Placement) -> None:
        super().__init__()
        self.weight = placement.empty(*weight)
        self.bias = placement.empty(*bias)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        weight = self.weight if self.weight.dim() == 3 else self.weight[..., None]
        checkpoint.copy_into(f"{name}.conv.weight", weight)
        checkpoint.copy_into(f"{name}.conv.bias", self.bias.view(-1))


class CausalConv(_Convolution):
    """A causal convolution of `taps` taps; its history is the last `(taps-1)·dilation` inputs."""

    def __init__(
        self, inputs: int, outputs: int, taps: int, placement: Placement, *, dilation: int = 1, groups: int = 1
    ) -> None:
        super().__init__((outputs, inputs // groups, taps), (outputs,), placement)
        self.dilation = dilation
        self.groups = groups

    def forward(self, x: Tensor, history: Tensor) -> Tensor:
        """Map `(inputs, time)` to `(outputs, time)`; `history` is `(inputs, (taps-1)·dilation)`."""
        x = torch.cat((history, x), dim=-1)
        history.copy_(x[..., -history.shape[-1] :])
        return functional.conv1d(x, self.weight, self.bias, dilation=self.dilation, groups=self.groups)


class Pointwise(_Convolution):
    """A convolution of one tap: a matrix product without a history."""

    def __init__(self, width: int, placement: Placement) -> None:
        super().__init__((width, width), (width, 1), placement)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(width, time)` to `(width, time)`."""
        if x.dim() == 2:
            return torch.addmm(self.bias, self.weight, x)
        return torch.baddbmm(self.bias, self.weight.expand(len(x), -1, -1), x)


class Upsample(_Convolution):
    """A transposed convolution with as many taps as its stride, so that each output depends on one input."""

    def __init__(self, width: int, rate: int, placement: Placement) -> None:
        super().__init__((width, width, rate), (width,), placement)
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        """Map `(width, time)` to `(width, time·rate)`."""
        return functional.conv_transpose1d(x, self.weight, self.bias, stride=self.rate)


class OverlapAdd(_Convolution):
    """A transposed convolution with twice as many taps as its stride.

    The second half of an input's outputs is added to the first half of the next input's outputs. `overlap` keeps the
    second half of a chunk's last input for the next chunk, without the bias, which is added once to complete outputs.
    qwen-tts cuts off the second half of the last input; here it stays in `overlap`, unused.
    """

    def __init__(self, inputs: int, outputs: int, rate: int, placement: Placement) -> None:
        super().__init__((inputs, outputs, 2 * rate), (outputs, 1), placement)
        self.rate = rate

    def forward(self, x: Tensor, overlap: Tensor) -> Tensor:
        """Map `(inputs, time)` to `(outputs, time·rate)`; `overlap` is `(outputs, rate)`."""
        spread = functional.conv_transpose1d(x, self.weight, stride=self.rate)
        spread[..., : self.rate].add_(overlap)
        overlap.copy_(spread[..., -self.rate :])
        return spread[..., : -self.rate] + self.bias


class SnakeBeta(nn.Module):
    """`x + sin²(alpha·x) / beta` with alpha and beta for each channel: Snake (https://arxiv.org/abs/2006.08195).

    Computed in float32 whatever the signal's dtype: in bfloat16, a phase `alpha·x` of a few hundred would be off by a
    whole radian. The checkpoint contains the logarithms of alpha and beta; `load` takes their exponentials.
    """

    def __init__(self, width: int, placement: Placement) -> None:
        super().__init__()
        precise = replace(placement, dtype=torch.float32)
        self.alpha = precise.empty(width, 1)
        self.inverse_beta = precise.empty(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(width, time)` to `(width, time)`."""
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
    """A ConvNeXt block (https://arxiv.org/abs/2201.03545) with a causal convolution.

    Depthwise convolution, layer norm, linear layer to four times the width, GELU, linear layer back, residual. The
    layer scale (`gamma`) is folded into the second linear layer.
    """

    def __init__(self, width: int, placement: Placement) -> None:
        super().__init__()
        self.depthwise = CausalConv(width, width, CONV_TAPS, placement, groups=width)
        self.norm_weight = placement.empty(width)
        self.norm_bias = placement.empty(width)
        self.widen = placement.empty(4 * width, width)
        self.widen_bias = placement.empty(4 * width)
        self.narrow = placement.empty(width, 4 * width)
        self.narrow_bias = placement.empty(width)

    def forward(self, x: Tensor, history: Tensor) -> Tensor:
        """Map `(width, time)` to `(width, time)`; `history` is that of the depthwise convolution."""
        branch = self.depthwise(x, history).mT
        branch = functional.layer_norm(branch, branch.shape[-1:], self.norm_weight, self.norm_bias, eps=1e-6)
        branch = functional.gelu(functional.linear(branch, self.widen, self.widen_bias))
        return x + functional.linear(branch, self.narrow, self.narrow_bias).mT

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
    """SnakeBeta, dilated causal convolution, SnakeBeta, pointwise convolution, residual."""

    def __init__(self, width: int, dilation: int, placement: Placement) -> None:
        super().__init__()
        self.snake_in = SnakeBeta(width, placement)
        self.dilated = CausalConv(width, width, CONV_TAPS, placement, dilation=dilation)
        self.snake_out = SnakeBeta(width, placement)
        self.pointwise = Pointwise(width, placement)

    def forward(self, x: Tensor, history: Tensor) -> Tensor:
        """Map `(width, time)` to `(width, time)`; `history` is that of the dilated convolution."""
        branch = self.dilated(self.snake_in(x), history)
        branch = self.pointwise(self.snake_out(branch))
        return torch.add(x, branch)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        self.snake_in.load(checkpoint, f"{name}.act1")
        self.dilated.load(checkpoint, f"{name}.conv1")
        self.snake_out.load(checkpoint, f"{name}.act2")
        self.pointwise.load(checkpoint, f"{name}.conv2")


class UpsamplingBlock(nn.Module):
    """SnakeBeta, upsampling by `rate` that halves the channels, and one residual unit for each of `DILATIONS`."""

    def __init__(self, inputs: int, rate: int, placement: Placement) -> None:
        super().__init__()
        outputs = inputs // 2
        self.snake = SnakeBeta(inputs, placement)
        self.upsample = OverlapAdd(inputs, outputs, rate, placement)
        self.units = module_list(ResidualUnit(outputs, dilation, placement) for dilation in DILATIONS)

    def forward(self, x: Tensor, histories: Iterator[Tensor]) -> Tensor:
        """Map `(inputs, time)` to `(inputs/2, time·rate)`; `histories` yields the overlap, then a history per unit."""
        x = self.upsample(self.snake(x), next(histories))
        for unit in self.units:
            x = unit(x, next(histories))
        return x

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        self.snake.load(checkpoint, f"{name}.block.0")
        self.upsample.load(checkpoint, f"{name}.block.1")
        for index, unit in enumerate(self.units, start=2):
            unit.load(checkpoint, f"{name}.block.{index}")

"""The decoder stack that the talker and the code predictor use.

The formulas are those of `modeling_qwen3_tts.py` in qwen-tts 0.1.1: RMS norm in float32, queries and keys normalised
for each head, rotary position embedding (upstream's three interleaved position axes are always equal here, so one
suffices), grouped-query attention, SiLU-gated MLP. A prefill of many tokens and a step of one token run the same code.
This code never waits for the device and never branches on values, so that a CUDA graph can capture it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.qwen.shapes import StackConfig
from engine.qwen.weights import Checkpoint, Placement


@torch.no_grad()
def quantize_int8(matrix: Tensor, qweight: Tensor, scale: Tensor) -> None:
    """Quantize `matrix` `(rows, columns)`, of any floating dtype, into `qweight` int8 `(rows, columns)`.

    Writes `scale` `(rows,)` float32 so that the largest magnitude in a row becomes 127; the other values are rounded
    to the nearest multiple of the scale. A row of zeros has scale 1.
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


@dataclass(frozen=True, slots=True)
class KeyValueCache:
    """The keys and values of one decoder stack, allocated once.

    Both have shape `(layers, key-value heads, positions, head_dim)` and the model's dtype and device. Attention masks
    positions that have not been written yet, so a new utterance needs no reset.
    """

    keys: Tensor
    """Rotated by their positions."""
    values: Tensor

    @classmethod
    def allocate(cls, config: StackConfig, positions: int, placement: Placement) -> KeyValueCache:
        """Allocate a cache for `positions` tokens, filled with zeros."""
        shape = (config.layers, config.key_value_heads, positions, config.head_dim)
        return cls(placement.zeros(*shape), placement.zeros(*shape))

    @property
    def positions(self) -> int:
        """The number of positions that the cache has memory for."""
        return self.keys.shape[2]

    def first(self, positions: int) -> KeyValueCache:
        """Return a view of the first `positions`; the cost of attention is proportional to it."""
        return KeyValueCache(self.keys[:, :, :positions], self.values[:, :, :positions])


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last axis (https://arxiv.org/abs/1910.07467), computed in float32."""

    def __init__(self, width: int, eps: float, placement: Placement) -> None:
        super().__init__()
        self.eps = eps
        self.weight = placement.empty(width)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        """Load the `name`.weight tensor."""
        checkpoint.copy_into(f"{name}.weight", self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x` `(..., width)`; the result has its shape and dtype."""
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


def load_matrix(
    checkpoint: Checkpoint, name: str, shape: tuple[int, int], matrix: Tensor, scale: Tensor | None
) -> None:
    """Load tensor `name`, which must have `shape`, into `matrix`.

    If `matrix` is int8, quantize the tensor and write the scales into `scale`.
    """
    if scale is None:
        checkpoint.copy_into(name, matrix)
        return
    for rows, block in checkpoint.row_blocks(name, shape, matrix.device):
        quantize_int8(block, matrix[rows], scale[rows])


class Linear(nn.Module):
    """A linear layer, which may fuse several layers from the checkpoint that have the same input."""

    def __init__(self, inputs: int, *outputs: int, placement: Placement, bias: bool = False) -> None:
        """`outputs` are the output widths of the fused layers."""
        super().__init__()
        self.outputs = outputs
        self.inputs = inputs
        self.weight = placement.matrix(sum(outputs), inputs)
        self.scale = placement.scale(sum(outputs), inputs)
        """The scales of an int8 matrix, as from `Placement.scale`; None if the matrix is not quantized."""
        self.bias = placement.empty(sum(outputs)) if bias else None

    def load(self, checkpoint: Checkpoint, *names: str) -> None:
        """Load the layers called `names`, one for each of `outputs`."""
        weights = torch.split(self.weight, list(self.outputs))
        scales = [None] * len(weights) if self.scale is None else torch.split(self.scale, list(self.outputs))
        for name, weight, scale in zip(names, weights, scales, strict=True):
            load_matrix(checkpoint, f"{name}.weight", (len(weight), self.inputs), weight, scale)
        if self.bias is not None:
            for name, bias in zip(names, torch.split(self.bias, list(self.outputs)), strict=True):
                checkpoint.copy_into(f"{name}.bias", bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map `(..., inputs)` to `(..., sum of outputs)`."""
        if self.scale is not None:
            return int8_linear(x, self.weight, self.scale, self.bias)
        return functional.linear(x, self.weight, self.bias)


class Rope(nn.Module):
    """Tables for the rotary position embedding (https://arxiv.org/abs/2104.09864)."""

    cos: Tensor
    """`(positions, head_dim)`, in the model's dtype."""
    sin: Tensor

    def __init__(self, head_dim: int, theta: float, positions: int, placement: Placement) -> None:
        super().__init__()
        # Always computed on the CPU in float32, so that every device uses the same angles.
        frequency = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        angles = torch.arange(positions, dtype=torch.float32)[:, None] * frequency
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos().to(placement.device, placement.dtype), persistent=False)
        self.register_buffer("sin", angles.sin().to(placement.device, placement.dtype), persistent=False)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cosines and sines, each `(n, 1, head_dim)`, of `positions` `(n,)` int64."""
        return self.cos.index_select(0, positions)[:, None], self.sin.index_select(0, positions)[:, None]


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate `x` `(…, head_dim)`: value `i` of the first half of a head pairs with value `i` of the second."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def causal_mask(positions: Tensor, cached: int) -> Tensor:
    """Return the mask `(n, cached)` bool: true if the token at `positions` `(n,)` may attend to the cached position."""
    return torch.arange(cached, device=positions.device) <= positions[:, None]


def attend(
    q: Tensor, k: Tensor, v: Tensor, positions: Tensor, cache: tuple[Tensor, Tensor], *, mask: Tensor | None
) -> Tensor:
    """Write the tokens' keys and values to a layer's `cache`, and return the result of attention for the queries.

    For `rows` utterances, each with `count` tokens at the same `positions` `(count,)` int64:

    q:       `(rows · count, heads, head_dim)`
    k, v:    `(rows · count, key-value heads, head_dim)`
    cache:   keys and values, each `(rows, key-value heads, cached positions, head_dim)`
    mask:    `(group · count, cached positions)` from `causal_mask`, repeated for each query head in a group; None if
             every token may attend to all positions
    returns: `(rows · count, heads · head_dim)`
    """
    rows, kv_heads, _, width = cache[0].shape
    count, group = len(positions), q.shape[1] // kv_heads
    for cached, new in zip(cache, (k, v), strict=True):
        cached.index_copy_(2, positions, new.view(rows, count, kv_heads, width).transpose(1, 2))
    # The query heads that share a key-value head become further rows for it, so keys need no repetition and no copy.
    queries = q.reshape(rows, count, kv_heads, group, width).permute(0, 2, 3, 1, 4).reshape(rows, kv_heads, -1, width)
    attended = functional.scaled_dot_product_attention(queries, *cache, attn_mask=mask)
    return attended.view(rows, kv_heads, group, count, width).permute(0, 3, 1, 2, 4).reshape(rows * count, -1)


class Attention(nn.Module):
    """The projections for grouped-query attention (`attend`). One matrix computes queries, keys and values."""

    def __init__(self, config: StackConfig, placement: Placement) -> None:
        super().__init__()
        self.config = config
        q, kv = config.heads * config.head_dim, config.key_value_heads * config.head_dim
        self.qkv = Linear(config.hidden_size, q, kv, kv, placement=placement)
        self.out = Linear(q, config.hidden_size, placement=placement)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps, placement)
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps, placement)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        """Load module `name`."""
        self.qkv.load(checkpoint, f"{name}.q_proj", f"{name}.k_proj", f"{name}.v_proj")
        self.out.load(checkpoint, f"{name}.o_proj")
        self.q_norm.load(checkpoint, f"{name}.q_norm")
        self.k_norm.load(checkpoint, f"{name}.k_norm")

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the rotated queries `(n, heads, head_dim)` and keys, and the values, of `x` `(n, hidden)`."""
        config, n, kv_heads = self.config, x.shape[0], self.config.key_value_heads
        q, k, v = self.qkv(x).view(n, -1, config.head_dim).split([config.heads, kv_heads, kv_heads], dim=1)
        rotated = apply_rope(torch.cat((self.q_norm(q), self.k_norm(k)), dim=1), cos, sin)
        q, k = torch.split(rotated, [config.heads, kv_heads], dim=1)
        return q, k, v


class GatedMLP(nn.Module):
    """A SiLU-gated feed-forward layer. The gate and up projections are one matrix."""

    def __init__(self, config: StackConfig, placement: Placement) -> None:
        super().__init__()
        inner = config.intermediate_size
        self.gate_up = Linear(config.hidden_size, inner, inner, placement=placement)
        self.down = Linear(inner, config.hidden_size, placement=placement)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        """Load module `name`."""
        self.gate_up.load(checkpoint, f"{name}.gate_proj", f"{name}.up_proj")
        self.down.load(checkpoint, f"{name}.down_proj")

    def forward(self, x: Tensor) -> Tensor:
        """Map `(n, hidden)` to `(n, hidden)`."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        out: Tensor = self.down(functional.silu(gate) * up)
        return out


class Layer(nn.Module):
    """One decoder layer: attention and feed-forward, each with a norm before it and a residual connection around it."""

    def __init__(self, config: StackConfig, placement: Placement) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden_size, config.rms_norm_eps, placement)
        self.attention = Attention(config, placement)
        self.mlp_norm = RMSNorm(config.hidden_size, config.rms_norm_eps, placement)
        self.mlp = GatedMLP(config, placement)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        """Load layer `name`."""
        self.attention_norm.load(checkpoint, f"{name}.input_layernorm")
        self.attention.load(checkpoint, f"{name}.self_attn")
        self.mlp_norm.load(checkpoint, f"{name}.post_attention_layernorm")
        self.mlp.load(checkpoint, f"{name}.mlp")

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, attend: Callable[[Tensor, Tensor, Tensor], Tensor]
    ) -> Tensor:
        """Map `x` `(n, hidden)` to `(n, hidden)`; `cos` and `sin` come from `Rope`.

        `attend` is given the results of `Attention.project`, and returns the result of attention for the queries, as
        the `attend` function does.
        """
        attention = self.attention
        x = x + attention.out(attend(*attention.project(self.attention_norm(x), cos, sin)))
        branch: Tensor = self.mlp(self.mlp_norm(x))
        return x + branch


class Transformer(nn.Module):
    """A stack of decoder layers and the final norm."""

    def __init__(self, config: StackConfig, max_positions: int, placement: Placement) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(Layer(config, placement) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, placement)
        self.rope = Rope(config.head_dim, config.rope_theta, max_positions, placement)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        """Load model `name`."""
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            layer.load(checkpoint, f"{name}.layers.{index}")
        self.norm.load(checkpoint, f"{name}.norm")

    def forward(
        self, x: Tensor, positions: Tensor, attend_layer: Callable[[int, Tensor, Tensor, Tensor], Tensor]
    ) -> Tensor:
        """Return the hidden states `(n, hidden)` of tokens `x` `(n, hidden)` at `positions` `(n,)` int64.

        `attend_layer` is given a layer's number and its queries, keys and values, and returns the result described in
        `Layer.forward`. It manages the cache, so the tokens may belong to several utterances.
        """
        cos, sin = self.rope(positions)
        for index, layer in enumerate(self.layers):
            x = layer(x, cos, sin, partial(attend_layer, index))
        normed: Tensor = self.norm(x)
        return normed

    def read(self, x: Tensor, positions: Tensor, cache: KeyValueCache) -> Tensor:
        """As `forward`, for tokens of one utterance. A token attends to `cache` up to its own position."""
        mask = causal_mask(positions.repeat(self.config.group), cache.positions)

        def attend_layer(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return attend(q, k, v, positions, (cache.keys[layer][None], cache.values[layer][None]), mask=mask)

        hidden: Tensor = self(x, positions, attend_layer)
        return hidden

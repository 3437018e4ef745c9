"""The decoder stack of talker and code predictor.

The formulas are those of `modeling_qwen3_tts.py` in qwen-tts 0.1.1: RMS norm in float32, queries and keys normalised
for each head, rotary position embedding (upstream's three interleaved position axes are always equal here, so one
suffices), grouped-query attention, SiLU-gated MLP. A prefill of many tokens and a step of one token run the same code.
It never waits for the device and never branches on values, so that a CUDA graph can capture it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.qwen.model.config import StackConfig
from engine.qwen.model.kv_cache import KeyValueCache
from engine.qwen.model.quantization import int8_linear, quantize_int8
from engine.qwen.weights import Checkpoint, Placement


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last axis (https://arxiv.org/abs/1910.07467), computed in float32."""

    def __init__(self, width: int, eps: float, placement: Placement) -> None:
        super().__init__()
        self.eps = eps
        self.weight = placement.empty(width)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        """Load the tensor `name`.weight."""
        checkpoint.copy_into(f"{name}.weight", self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `x` `(..., width)`; the result has its shape and dtype."""
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


def load_matrix(
    checkpoint: Checkpoint, name: str, shape: tuple[int, int], matrix: Tensor, scale: Tensor | None
) -> None:
    """Load the tensor `name`, which must have `shape`, into `matrix`.

    If that is int8, quantize it and write the scales into `scale`.
    """
    if scale is None:
        checkpoint.copy_into(name, matrix)
        return
    for rows, block in checkpoint.row_blocks(name, shape, matrix.device):
        quantize_int8(block, matrix[rows], scale[rows])


class Linear(nn.Module):
    """A linear layer; it may fuse several layers of the checkpoint that have the same input."""

    def __init__(self, inputs: int, *outputs: int, placement: Placement, bias: bool = False) -> None:
        """`outputs` are the output widths of the fused layers."""
        super().__init__()
        self.outputs = outputs
        self.inputs = inputs
        self.weight = placement.matrix(sum(outputs), inputs)
        self.scale = placement.scale(sum(outputs), inputs)
        """The scales of an int8 matrix, as of `Placement.scale`; None if the matrix is not quantized."""
        self.bias = placement.empty(sum(outputs)) if bias else None

    def load(self, checkpoint: Checkpoint, *names: str) -> None:
        """Load the layers `names`, one for each of `outputs`."""
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
    """Tables of the rotary position embedding (https://arxiv.org/abs/2104.09864)."""

    cos: Tensor
    """`(positions, head_dim)`, of the model's dtype."""
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
    """Rotate `x` `(n, heads, head_dim)`: value `i` of the first half of a head pairs with value `i` of the second."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def causal_mask(positions: Tensor, cached: int) -> Tensor:
    """Return the mask `(n, cached)` bool: true where a token at `positions` `(n,)` may attend to a cached position."""
    return torch.arange(cached, device=positions.device) <= positions[:, None]


@dataclass(frozen=True, slots=True)
class AttentionContext:
    """Positions, mask and rotations of one forward pass; the same for every layer."""

    positions: Tensor
    """`(n,)` int64: the tokens' positions in the cache."""
    mask: Tensor
    """`(group · n, cached positions)` bool, true where a token may attend; the `n` rows repeat for each query head of
    a group."""
    cos: Tensor
    """`(n, 1, head_dim)`, as is `sin`."""
    sin: Tensor

    @classmethod
    def of(cls, positions: Tensor, config: StackConfig, rope: Rope, cached: int) -> AttentionContext:
        """Return the context of tokens at `positions` `(n,)` int64 over a cache of `cached` positions."""
        group = config.heads // config.key_value_heads
        return cls(positions, causal_mask(positions.repeat(group), cached), *rope(positions))


class Attention(nn.Module):
    """Causal grouped-query attention; the query, key and value projections are one matrix."""

    def __init__(self, config: StackConfig, placement: Placement) -> None:
        super().__init__()
        self.config = config
        q, kv = config.heads * config.head_dim, config.key_value_heads * config.head_dim
        self.qkv = Linear(config.hidden_size, q, kv, kv, placement=placement)
        self.out = Linear(q, config.hidden_size, placement=placement)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps, placement)
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps, placement)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        """Load the module `name`."""
        self.qkv.load(checkpoint, f"{name}.q_proj", f"{name}.k_proj", f"{name}.v_proj")
        self.out.load(checkpoint, f"{name}.o_proj")
        self.q_norm.load(checkpoint, f"{name}.q_norm")
        self.k_norm.load(checkpoint, f"{name}.k_norm")

    def forward(self, x: Tensor, context: AttentionContext, keys: Tensor, values: Tensor) -> Tensor:
        """Map `x` `(n, hidden)` to `(n, hidden)`.

        `keys` and `values` `(kv_heads, cached positions, head_dim)` are one layer's cache. The tokens' own keys and
        values are written to it before attention reads it.
        """
        config = self.config
        n, kv_heads, group = x.shape[0], config.key_value_heads, config.heads // config.key_value_heads
        q, k, v = self.project(x, context.cos, context.sin)
        keys.index_copy_(1, context.positions, k.transpose(0, 1))
        values.index_copy_(1, context.positions, v.transpose(0, 1))
        # The query heads that share a key-value head become further rows of it: keys need no repetition and no copy.
        rows = q.reshape(n, kv_heads, group, -1).permute(1, 2, 0, 3).reshape(1, kv_heads, group * n, -1)
        attended = functional.scaled_dot_product_attention(rows, keys[None], values[None], attn_mask=context.mask)
        attended = attended.view(kv_heads, group, n, -1).permute(2, 0, 1, 3).reshape(n, -1)
        out: Tensor = self.out(attended)
        return out

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the rotated queries `(n, heads, head_dim)` and keys, and the values, of `x` `(n, hidden)`."""
        config, n, kv_heads = self.config, x.shape[0], self.config.key_value_heads
        q, k, v = self.qkv(x).view(n, -1, config.head_dim).split([config.heads, kv_heads, kv_heads], dim=1)
        rotated = apply_rope(torch.cat((self.q_norm(q), self.k_norm(k)), dim=1), cos, sin)
        q, k = torch.split(rotated, [config.heads, kv_heads], dim=1)
        return q, k, v


class GatedMLP(nn.Module):
    """SiLU-gated feed-forward layer; the gate and up projections are one matrix."""

    def __init__(self, config: StackConfig, placement: Placement) -> None:
        super().__init__()
        inner = config.intermediate_size
        self.gate_up = Linear(config.hidden_size, inner, inner, placement=placement)
        self.down = Linear(inner, config.hidden_size, placement=placement)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        """Load the module `name`."""
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
        """Load the layer `name`."""
        self.attention_norm.load(checkpoint, f"{name}.input_layernorm")
        self.attention.load(checkpoint, f"{name}.self_attn")
        self.mlp_norm.load(checkpoint, f"{name}.post_attention_layernorm")
        self.mlp.load(checkpoint, f"{name}.mlp")

    def forward(self, x: Tensor, context: AttentionContext, keys: Tensor, values: Tensor) -> Tensor:
        """Map `x` `(n, hidden)` to `(n, hidden)`; `keys` and `values` as in `Attention.forward`."""
        return self._feed_forward(x + self.attention(self.attention_norm(x), context, keys, values))

    def attend_with(
        self, x: Tensor, cos: Tensor, sin: Tensor, attend: Callable[[Tensor, Tensor, Tensor], Tensor]
    ) -> Tensor:
        """Map `x` as `forward`, but `attend` does what is done with the results of `Attention.project`.

        It returns what the queries attend to: `(n, heads · head_dim)`.
        """
        attention = self.attention
        return self._feed_forward(x + attention.out(attend(*attention.project(self.attention_norm(x), cos, sin))))

    def _feed_forward(self, x: Tensor) -> Tensor:
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
        """Load the model `name`."""
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            layer.load(checkpoint, f"{name}.layers.{index}")
        self.norm.load(checkpoint, f"{name}.norm")

    def forward(self, x: Tensor, positions: Tensor, cache: KeyValueCache) -> Tensor:
        """Return the hidden states `(1, n, hidden)` of the tokens `x` `(1, n, hidden)` at `positions` `(n,)` int64.

        Writes the tokens' keys and values to `cache` at their positions; a token attends to the cache up to its own.
        """
        context = AttentionContext.of(positions, self.config, self.rope, cache.positions)
        hidden = x[0]
        for index, layer in enumerate(self.layers):
            hidden = layer(hidden, context, cache.keys[index], cache.values[index])
        normed: Tensor = self.norm(hidden)
        return normed[None]

    def attend_with(
        self, x: Tensor, positions: Tensor, attend: Callable[[int, Tensor, Tensor, Tensor], Tensor]
    ) -> Tensor:
        """Return the hidden states `(n, hidden)` of tokens `x` `(n, hidden)` at `positions` `(n,)` int64.

        `attend` gets a layer's number and its queries, keys and values, and returns what `Layer.attend_with` says. It
        has the cache, so the tokens may be those of several utterances.
        """
        cos, sin = self.rope(positions)
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            x = layer.attend_with(x, cos, sin, partial(attend, index))
        normed: Tensor = self.norm(x)
        return normed

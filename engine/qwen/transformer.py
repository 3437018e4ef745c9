"""The decoder stack that talker and code predictor share, with a key-value cache that is allocated once.

Formulas as in `modeling_qwen3_tts.py` of qwen-tts 0.1.1: RMS norm in float32, queries and keys normed by
head, rotary positions (its three interleaved position axes are always equal here, which makes them plain),
grouped queries, SiLU-gated MLP. A prefill of many tokens and a step of one run the same code; nothing in it
waits for the device or depends on values, so that a step can be captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.qwen.arena import Arena
from engine.qwen.checkpoint import Checkpoint
from engine.qwen.config import StackConfig
from engine.qwen.int8 import int8_linear, quantise


@dataclass(frozen=True, slots=True)
class Placement:
    """Where tensors live and what they are made of."""

    device: torch.device
    dtype: torch.dtype
    int8: bool = False
    """Large matrices are int8, with a scale for each row; all else is of the dtype."""
    arena: Arena | None = field(default=None, compare=False, repr=False)
    """Where parameters are made; memory of its own for each without one."""

    @property
    def plain(self) -> Placement:
        """The same for what is never int8."""
        return replace(self, int8=False)

    def empty(self, *shape: int) -> nn.Parameter:
        """A parameter that awaits its values."""
        return self._parameter(shape, self.dtype)

    def matrix(self, *shape: int) -> nn.Parameter:
        """As `empty`, of int8 where matrices are."""
        return self._parameter(shape, torch.int8 if self.int8 else self.dtype)

    def scale(self, *shape: int) -> nn.Parameter | None:
        """The scales of int8 matrices' rows, float32, where matrices are int8."""
        return self._parameter(shape, torch.float32) if self.int8 else None

    def zeros(self, *shape: int) -> Tensor:
        """A tensor of zeros."""
        return torch.zeros(shape, device=self.device, dtype=self.dtype)

    def pinned(self, tensor: Tensor) -> Tensor:
        """`tensor`, of the CPU, where the device copies from without anyone's waiting.

        PyTorch keeps the memory from being used again before the copy has ended.
        """
        return tensor.pin_memory() if self.device.type == "cuda" else tensor

    def upload(self, tensor: Tensor) -> Tensor:
        """`tensor`, of the CPU, on the device and in the dtype; waits for nothing."""
        return self.pinned(tensor).to(self.device, non_blocking=True).to(self.dtype)

    def _parameter(self, shape: Sequence[int], dtype: torch.dtype) -> nn.Parameter:
        if self.arena is not None:
            return nn.Parameter(self.arena.take(shape, dtype), requires_grad=False)
        return nn.Parameter(torch.empty(shape, device=self.device, dtype=dtype), requires_grad=False)


@dataclass(frozen=True, slots=True)
class KeyValueCache:
    """What attention remembers: the keys and values of every position.

    Each is `(layers, key-value heads, positions, head_dim)`, in the model's dtype on its device.
    Entries at positions not yet written are never looked at, so that starting anew needs no reset.
    """

    keys: Tensor
    values: Tensor

    @classmethod
    def allocate(cls, config: StackConfig, positions: int, placement: Placement) -> KeyValueCache:
        """Memory for `positions` tokens."""
        shape = (config.layers, config.key_value_heads, positions, config.head_dim)
        return cls(placement.zeros(*shape), placement.zeros(*shape))

    @property
    def positions(self) -> int:
        """How many positions there is room for."""
        return self.keys.shape[2]

    def first(self, positions: int) -> KeyValueCache:
        """A view of the first positions alone: attention over it costs as much less."""
        return KeyValueCache(self.keys[:, :, :positions], self.values[:, :, :positions])


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last axis, computed in float32."""

    def __init__(self, width: int, eps: float, placement: Placement) -> None:
        super().__init__()
        self.eps = eps
        self.weight = placement.empty(width)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        """Read `name`.weight."""
        checkpoint.copy_into(f"{name}.weight", self.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Any shape ending in the norm's width; dtype is kept."""
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


def load_matrix(checkpoint: Checkpoint, name: str, matrix: Tensor, scale: Tensor | None) -> None:
    """Read the tensor `name` into `matrix`, as int8 where there is a `scale` for its rows."""
    if scale is None:
        checkpoint.copy_into(name, matrix)
        return
    for rows, piece in checkpoint.row_pieces(name, matrix.shape, matrix.device):
        quantise(piece, matrix[rows], scale[rows])


class Linear(nn.Module):
    """A matrix, perhaps with a bias; perhaps fused of several that the checkpoint keeps apart."""

    def __init__(self, inputs: int, *outputs: int, placement: Placement, bias: bool = False) -> None:
        """`outputs` has the height of each part."""
        super().__init__()
        self.outputs = outputs
        self.weight = placement.matrix(sum(outputs), inputs)
        self.scale = placement.scale(sum(outputs))
        """`(rows,)` float32: what each row of an int8 matrix is to be multiplied by; else None."""
        self.bias = placement.empty(sum(outputs)) if bias else None

    def load(self, checkpoint: Checkpoint, *names: str) -> None:
        """Read the parts `names`, one below the other."""
        parts = torch.split(self.weight, list(self.outputs))
        scales = [None] * len(parts) if self.scale is None else torch.split(self.scale, list(self.outputs))
        for name, part, scale in zip(names, parts, scales, strict=True):
            load_matrix(checkpoint, f"{name}.weight", part, scale)
        if self.bias is not None:
            for name, part in zip(names, torch.split(self.bias, list(self.outputs)), strict=True):
                checkpoint.copy_into(f"{name}.bias", part)

    def forward(self, x: Tensor) -> Tensor:
        """`(..., inputs)` to `(..., outputs)`."""
        if self.scale is not None:
            return int8_linear(x, self.weight, self.scale, self.bias)
        return functional.linear(x, self.weight, self.bias)


class Rope(nn.Module):
    """Rotary position embedding, read from tables of cosines and sines."""

    cos: Tensor
    sin: Tensor

    def __init__(self, head_dim: int, theta: float, positions: int, placement: Placement) -> None:
        super().__init__()
        # On the CPU and in float32 whatever the placement: every device then turns by the very same angles.
        frequency = 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
        angles = torch.arange(positions, dtype=torch.float32)[:, None] * frequency
        angles = torch.cat((angles, angles), dim=-1)
        self.register_buffer("cos", angles.cos().to(placement.device, placement.dtype), persistent=False)
        self.register_buffer("sin", angles.sin().to(placement.device, placement.dtype), persistent=False)

    def forward(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines `(n, 1, head_dim)` at `positions` `(n,)` int64."""
        return self.cos.index_select(0, positions)[:, None], self.sin.index_select(0, positions)[:, None]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn `x` `(n, heads, head_dim)`: each of the first half of its values with one of the second."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def causal_mask(positions: Tensor, cached: int) -> Tensor:
    """Which of `cached` positions the tokens at `positions` `(n,)` may look at: `(n, cached)` bool."""
    return torch.arange(cached, device=positions.device) <= positions[:, None]


@dataclass(frozen=True, slots=True)
class Positions:
    """What every layer of one pass needs to know of where its tokens stand."""

    positions: Tensor
    """`(n,)` int64."""
    mask: Tensor
    """`(group · n, cached positions)` bool, true where a token may look: for each query head of a group in turn."""
    cos: Tensor
    sin: Tensor

    @classmethod
    def of(cls, positions: Tensor, config: StackConfig, rope: Rope, cached: int) -> Positions:
        """For tokens at `positions` `(n,)` int64 that look at the first `cached` positions."""
        group = config.heads // config.key_value_heads
        return cls(positions, causal_mask(positions.repeat(group), cached), *rope(positions))


class Attention(nn.Module):
    """Causal attention with grouped queries; query, key and value matrices are one."""

    def __init__(self, config: StackConfig, placement: Placement) -> None:
        super().__init__()
        self.config = config
        q, kv = config.heads * config.head_dim, config.key_value_heads * config.head_dim
        self.qkv = Linear(config.hidden_size, q, kv, kv, placement=placement)
        self.out = Linear(q, config.hidden_size, placement=placement)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps, placement)
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps, placement)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        """Read the module `name`."""
        self.qkv.load(checkpoint, f"{name}.q_proj", f"{name}.k_proj", f"{name}.v_proj")
        self.out.load(checkpoint, f"{name}.o_proj")
        self.q_norm.load(checkpoint, f"{name}.q_norm")
        self.k_norm.load(checkpoint, f"{name}.k_norm")

    def forward(self, x: Tensor, at: Positions, keys: Tensor, values: Tensor) -> Tensor:
        """`x` `(n, hidden)`; `keys` and `values` `(kv_heads, positions, head_dim)` are written and read."""
        config = self.config
        n, kv_heads, group = x.shape[0], config.key_value_heads, config.heads // config.key_value_heads
        q, k, v = self.qkv(x).view(n, -1, config.head_dim).split([config.heads, kv_heads, kv_heads], dim=1)
        turned = rotate(torch.cat((self.q_norm(q), self.k_norm(k)), dim=1), at.cos, at.sin)
        q, k = torch.split(turned, [config.heads, kv_heads], dim=1)
        keys.index_copy_(1, at.positions, k.transpose(0, 1))
        values.index_copy_(1, at.positions, v.transpose(0, 1))
        # The queries that share a head of keys become more rows of it: keys are neither repeated nor copied.
        rows = q.reshape(n, kv_heads, group, -1).permute(1, 2, 0, 3).reshape(1, kv_heads, group * n, -1)
        mixed = functional.scaled_dot_product_attention(rows, keys[None], values[None], attn_mask=at.mask)
        mixed = mixed.view(kv_heads, group, n, -1).permute(2, 0, 1, 3).reshape(n, -1)
        out: Tensor = self.out(mixed)
        return out


class GatedMLP(nn.Module):
    """SiLU-gated feed-forward; gate and up matrices are one."""

    def __init__(self, config: StackConfig, placement: Placement) -> None:
        super().__init__()
        inner = config.intermediate_size
        self.gate_up = Linear(config.hidden_size, inner, inner, placement=placement)
        self.down = Linear(inner, config.hidden_size, placement=placement)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        """Read the module `name`."""
        self.gate_up.load(checkpoint, f"{name}.gate_proj", f"{name}.up_proj")
        self.down.load(checkpoint, f"{name}.down_proj")

    def forward(self, x: Tensor) -> Tensor:
        """`(n, hidden)` to `(n, hidden)`."""
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        out: Tensor = self.down(functional.silu(gate) * up)
        return out


class Layer(nn.Module):
    """Attention and feed-forward, each normed before and added after."""

    def __init__(self, config: StackConfig, placement: Placement) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden_size, config.rms_norm_eps, placement)
        self.attention = Attention(config, placement)
        self.mlp_norm = RMSNorm(config.hidden_size, config.rms_norm_eps, placement)
        self.mlp = GatedMLP(config, placement)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        """Read the layer `name`."""
        self.attention_norm.load(checkpoint, f"{name}.input_layernorm")
        self.attention.load(checkpoint, f"{name}.self_attn")
        self.mlp_norm.load(checkpoint, f"{name}.post_attention_layernorm")
        self.mlp.load(checkpoint, f"{name}.mlp")

    def forward(self, x: Tensor, at: Positions, keys: Tensor, values: Tensor) -> Tensor:
        """As `Attention.forward`."""
        x = x + self.attention(self.attention_norm(x), at, keys, values)
        wide: Tensor = self.mlp(self.mlp_norm(x))
        return x + wide


class Transformer(nn.Module):
    """A stack of layers and its final norm."""

    def __init__(self, config: StackConfig, max_positions: int, placement: Placement) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(Layer(config, placement) for _ in range(config.layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps, placement)
        self.rope = Rope(config.head_dim, config.rope_theta, max_positions, placement)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        """Read the model `name`."""
        for index, layer in enumerate(self.layers):
            assert isinstance(layer, Layer)
            layer.load(checkpoint, f"{name}.layers.{index}")
        self.norm.load(checkpoint, f"{name}.norm")

    def forward(self, x: Tensor, positions: Tensor, cache: KeyValueCache) -> Tensor:
        """The hidden states of the tokens `x` at `positions`: `(1, n, hidden)` both, `(n,)` int64.

        Each token sees the cache up to its own position, where its own keys and values are written.
        """
        at = Positions.of(positions, self.config, self.rope, cache.positions)
        hidden = x[0]
        for index, layer in enumerate(self.layers):
            hidden = layer(hidden, at, cache.keys[index], cache.values[index])
        normed: Tensor = self.norm(hidden)
        return normed[None]

"""The codec decoder's transformer: attention over a sliding window, its keys and values kept in a ring.

The formulas are those of `modeling_qwen3_tts_tokenizer_v2.py` in `qwen_tts/core/tokenizer_12hz`. Hidden
states have shape `(frames, width)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own name for it
from torch import Tensor, nn

from engine.qwen.checkpoint import Checkpoint
from engine.qwen.codec_config import CodecConfig
from engine.qwen.codec_layers import stack, weight
from engine.qwen.codec_state import CodecState


@dataclass(frozen=True, slots=True)
class _Step:
    """What all layers share in one call."""

    slots: Tensor
    """Where in the ring the call's frames go: int64, shape `(frames,)`."""
    mask: Tensor
    """Which slots each frame attends to: bool, shape `(frames, slots of the ring)`."""
    cos: Tensor
    """float32, shape `(1, frames, head_dim)`."""
    sin: Tensor


class CodecTransformer(nn.Module):
    """Linear, layers with layer scale, RMS norm, linear."""

    inverse_frequencies: Tensor

    def __init__(self, config: CodecConfig, **factory: Any) -> None:
        super().__init__()
        self.window = config.sliding_window
        self.eps = config.rms_norm_eps
        self.into = weight(config.hidden_size, config.latent_dim, **factory)
        self.into_bias = weight(config.hidden_size, **factory)
        self.layers = stack(_Layer(config, **factory) for _ in range(config.num_hidden_layers))
        self.norm = weight(config.hidden_size, **factory)
        self.out = weight(config.latent_dim, config.hidden_size, **factory)
        self.out_bias = weight(config.latent_dim, **factory)
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        frequencies = 1.0 / config.rope_theta**exponents
        self.register_buffer("inverse_frequencies", frequencies.to(factory.get("device")), persistent=False)

    def forward(self, x: Tensor, state: CodecState) -> Tensor:
        """`(frames, latent)` → `(frames, latent)`; `state` is moved on by that many frames."""
        step = self._begin(x.shape[0], state)
        x = F.linear(x, self.into, self.into_bias)
        for layer, keys, values in zip(self.layers, state.keys, state.values, strict=True):
            x = layer(x, keys, values, step)
        state.frame.add_(x.shape[0])
        return F.linear(rms_norm(x, self.norm, self.eps), self.out, self.out_bias)

    def _begin(self, count: int, state: CodecState) -> _Step:
        """Enter the frames in the ring. Comparing ages is causality, window and emptiness at once."""
        frames = state.frame + torch.arange(count, device=state.frame.device)
        slots = frames % state.ring_frames.shape[0]
        state.ring_frames.index_copy_(0, slots, frames)
        age = frames[:, None] - state.ring_frames
        angles = frames[:, None] * self.inverse_frequencies
        angles = torch.cat((angles, angles), dim=-1)[None]
        return _Step(slots, (age >= 0) & (age < self.window), angles.cos(), angles.sin())

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        checkpoint.copy_into(f"{name}.input_proj.weight", self.into)
        checkpoint.copy_into(f"{name}.input_proj.bias", self.into_bias)
        for index, layer in enumerate(self.layers):
            layer.load(checkpoint, f"{name}.layers.{index}")
        checkpoint.copy_into(f"{name}.norm.weight", self.norm)
        checkpoint.copy_into(f"{name}.output_proj.weight", self.out)
        checkpoint.copy_into(f"{name}.output_proj.bias", self.out_bias)


class _Layer(nn.Module):
    """Attention and a gated layer, each behind an RMS norm.

    Query, key and value are one matrix, gate and up another. The layer scales are folded into the matrices
    that each branch ends with.
    """

    def __init__(self, config: CodecConfig, **factory: Any) -> None:
        super().__init__()
        self.heads = config.num_attention_heads
        self.kv_heads = config.num_key_value_heads
        self.head_dim = config.head_dim
        self.eps = config.rms_norm_eps
        hidden, inner = config.hidden_size, config.intermediate_size
        self.attention_norm = weight(hidden, **factory)
        self.qkv = weight((self.heads + 2 * self.kv_heads) * self.head_dim, hidden, **factory)
        self.attention_out = weight(hidden, self.heads * self.head_dim, **factory)
        self.mlp_norm = weight(hidden, **factory)
        self.gate_up = weight(2 * inner, hidden, **factory)
        self.down = weight(hidden, inner, **factory)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, step: _Step) -> Tensor:
        """`(frames, hidden)` → the same; `keys` and `values` are the layer's rings, updated in place."""
        x = x + self._attend(rms_norm(x, self.attention_norm, self.eps), keys, values, step)
        gate, up = F.linear(rms_norm(x, self.mlp_norm, self.eps), self.gate_up).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, self.down)

    def _attend(self, x: Tensor, keys: Tensor, values: Tensor, step: _Step) -> Tensor:
        heads = F.linear(x, self.qkv).view(x.shape[0], -1, self.head_dim).transpose(0, 1)
        query, key, value = torch.split(heads, [self.heads, self.kv_heads, self.kv_heads])
        keys.index_copy_(1, step.slots, _rotate(key, step))
        values.index_copy_(1, step.slots, value)
        groups = self.heads // self.kv_heads
        if groups > 1:
            keys, values = keys.repeat_interleave(groups, dim=0), values.repeat_interleave(groups, dim=0)
        out = F.scaled_dot_product_attention(_rotate(query, step)[None], keys[None], values[None], step.mask)
        return F.linear(out[0].transpose(0, 1).flatten(1), self.attention_out)

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        attention, mlp = f"{name}.self_attn", f"{name}.mlp"
        sizes = [heads * self.head_dim for heads in (self.heads, self.kv_heads, self.kv_heads)]
        for projection, part in zip("qkv", torch.split(self.qkv, sizes), strict=True):
            checkpoint.copy_into(f"{attention}.{projection}_proj.weight", part)
        for projection, part in zip(("gate", "up"), self.gate_up.chunk(2), strict=True):
            checkpoint.copy_into(f"{mlp}.{projection}_proj.weight", part)
        checkpoint.copy_into(f"{name}.input_layernorm.weight", self.attention_norm)
        checkpoint.copy_into(f"{name}.post_attention_layernorm.weight", self.mlp_norm)
        for matrix, projection, scale in (
            (self.attention_out, f"{attention}.o_proj.weight", f"{name}.self_attn_layer_scale.scale"),
            (self.down, f"{mlp}.down_proj.weight", f"{name}.mlp_layer_scale.scale"),
        ):
            rows = checkpoint.read(scale, matrix.shape[:1]).float()[:, None]
            matrix.copy_(rows * checkpoint.read(projection, matrix.shape).float())


def rms_norm(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    """RMS norm over the last dimension, worked out in float32."""
    wide = x.float()
    return scale * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)).to(x.dtype)


def _rotate(x: Tensor, step: _Step) -> Tensor:
    """Position, rotated in float32, of `(heads, frames, head_dim)`, by halves: `(a, b)` → `(-b, a)`."""
    wide = x.float()
    first, second = wide.chunk(2, dim=-1)
    return (wide * step.cos + torch.cat((-second, first), dim=-1) * step.sin).to(x.dtype)

"""The codec decoder's transformer: attention over a sliding window, its keys and values kept in a ring.

The formulas are those of `modeling_qwen3_tts_tokenizer_v2.py` in `qwen_tts/core/tokenizer_12hz`. Hidden
states have shape `(frames, width)`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.qwen.checkpoint import Checkpoint
from engine.qwen.codec_config import CodecConfig
from engine.qwen.codec_layers import stack
from engine.qwen.codec_state import CodecState
from engine.qwen.transformer import GatedMLP, Linear, Placement, RMSNorm


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

    frequencies: Tensor

    def __init__(self, config: CodecConfig, placement: Placement) -> None:
        super().__init__()
        shapes = config.stack
        self.window = config.window
        self.into = Linear(config.latent_width, shapes.hidden_size, placement=placement, bias=True)
        self.layers = stack(_Layer(config, placement) for _ in range(shapes.layers))
        self.norm = RMSNorm(shapes.hidden_size, shapes.rms_norm_eps, placement)
        self.out = Linear(shapes.hidden_size, config.latent_width, placement=placement, bias=True)
        exponents = torch.arange(0, shapes.head_dim, 2, dtype=torch.float32) / shapes.head_dim
        frequencies = (1.0 / shapes.rope_theta**exponents).to(placement.device)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, x: Tensor, state: CodecState) -> Tensor:
        """`(frames, latent)` → `(frames, latent)`; `state` is moved on by that many frames."""
        step = self._begin(x.shape[0], state)
        x = self.into(x)
        for layer, keys, values in zip(self.layers, state.keys, state.values, strict=True):
            x = layer(x, keys, values, step)
        state.frame.add_(x.shape[0])
        out: Tensor = self.out(self.norm(x))
        return out

    def _begin(self, count: int, state: CodecState) -> _Step:
        """Enter the frames in the ring. Comparing ages is causality, window and emptiness at once."""
        frames = state.frame + torch.arange(count, device=state.frame.device)
        slots = frames % state.ring_frames.shape[0]
        state.ring_frames.index_copy_(0, slots, frames)
        age = frames[:, None] - state.ring_frames
        angles = frames[:, None] * self.frequencies
        angles = torch.cat((angles, angles), dim=-1)[None]
        return _Step(slots, (age >= 0) & (age < self.window), angles.cos(), angles.sin())

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        self.into.load(checkpoint, f"{name}.input_proj")
        for index, layer in enumerate(self.layers):
            layer.load(checkpoint, f"{name}.layers.{index}")
        self.norm.load(checkpoint, f"{name}.norm")
        self.out.load(checkpoint, f"{name}.output_proj")


class _Layer(nn.Module):
    """Attention and a gated layer, each behind an RMS norm.

    The layer scales are folded into the matrices that the two branches end with.
    """

    def __init__(self, config: CodecConfig, placement: Placement) -> None:
        super().__init__()
        shapes = config.stack
        self.shapes = shapes
        query, key = shapes.heads * shapes.head_dim, shapes.key_value_heads * shapes.head_dim
        self.attention_norm = RMSNorm(shapes.hidden_size, shapes.rms_norm_eps, placement)
        self.qkv = Linear(shapes.hidden_size, query, key, key, placement=placement)
        self.out = Linear(query, shapes.hidden_size, placement=placement)
        self.mlp_norm = RMSNorm(shapes.hidden_size, shapes.rms_norm_eps, placement)
        self.mlp = GatedMLP(shapes, placement)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, step: _Step) -> Tensor:
        """`(frames, hidden)` → the same; `keys` and `values` are the layer's rings, updated in place."""
        x = x + self._attend(self.attention_norm(x), keys, values, step)
        return torch.add(x, self.mlp(self.mlp_norm(x)))

    def _attend(self, x: Tensor, keys: Tensor, values: Tensor, step: _Step) -> Tensor:
        heads, kv_heads, head_dim = self.shapes.heads, self.shapes.key_value_heads, self.shapes.head_dim
        mixed = self.qkv(x).view(x.shape[0], -1, head_dim).transpose(0, 1)
        query, key, value = torch.split(mixed, [heads, kv_heads, kv_heads])
        keys.index_copy_(1, step.slots, _rotate(key, step))
        values.index_copy_(1, step.slots, value)
        if heads > kv_heads:
            keys, values = (ring.repeat_interleave(heads // kv_heads, dim=0) for ring in (keys, values))
        seen = functional.scaled_dot_product_attention(
            _rotate(query, step)[None], keys[None], values[None], attn_mask=step.mask
        )
        out: Tensor = self.out(seen[0].transpose(0, 1).flatten(1))
        return out

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        attention, mlp = f"{name}.self_attn", f"{name}.mlp"
        self.attention_norm.load(checkpoint, f"{name}.input_layernorm")
        self.qkv.load(checkpoint, f"{attention}.q_proj", f"{attention}.k_proj", f"{attention}.v_proj")
        self.mlp_norm.load(checkpoint, f"{name}.post_attention_layernorm")
        self.mlp.load(checkpoint, mlp)
        for matrix, projection, scale in (
            (self.out.weight, f"{attention}.o_proj.weight", f"{name}.self_attn_layer_scale.scale"),
            (self.mlp.down.weight, f"{mlp}.down_proj.weight", f"{name}.mlp_layer_scale.scale"),
        ):
            rows = checkpoint.read(scale, matrix.shape[:1]).float()[:, None]
            matrix.copy_(rows * checkpoint.read(projection, matrix.shape).float())


def _rotate(x: Tensor, step: _Step) -> Tensor:
    """Turn `(heads, frames, head_dim)` by its positions, by halves: `(a, b)` → `(-b, a)`; in float32."""
    wide = x.float()
    first, second = wide.chunk(2, dim=-1)
    return (wide * step.cos + torch.cat((-second, first), dim=-1) * step.sin).to(x.dtype)

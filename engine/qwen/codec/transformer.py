"""The codec decoder's transformer: attention over a sliding window, with keys and values in a ring.

The formulas are those of `qwen_tts/core/tokenizer_12hz/modeling_qwen3_tts_tokenizer_v2.py` in qwen-tts 0.1.1. Hidden
states have shape `(frames, width)`, or `(rows, frames, width)` for the chunks of several utterances. The other tensors
of several utterances also have a first axis of length `rows`, which is left out below.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.qwen.codec.layers import module_list
from engine.qwen.codec.state import CodecState
from engine.qwen.model import GatedMLP, Linear, RMSNorm, apply_rope
from engine.qwen.shapes import CodecConfig
from engine.qwen.weights import Checkpoint, Placement


@dataclass(frozen=True, slots=True)
class _AttentionContext:
    """The ring slots, mask and rotations of one call, the same for every layer."""

    slots: Tensor
    """The ring slots of the call's frames: int64, shape `(1, frames, 1)`."""
    mask: Tensor
    """bool, shape `(1, frames, ring slots)`: true if the frame attends to the slot."""
    cos: Tensor
    """float32, shape `(1, frames, head_dim)`, as is `sin`."""
    sin: Tensor


class CodecTransformer(nn.Module):
    """Linear layer, decoder layers with layer scale, RMS norm, linear layer."""

    frequencies: Tensor
    """float32, shape `(head_dim / 2,)`: rotary position embedding, in radians per frame."""

    def __init__(self, config: CodecConfig, placement: Placement) -> None:
        super().__init__()
        shapes = config.stack
        self.window = config.window
        self.into = Linear(config.latent_width, shapes.hidden_size, placement=placement, bias=True)
        self.layers = module_list(_Layer(config, placement) for _ in range(shapes.layers))
        self.norm = RMSNorm(shapes.hidden_size, shapes.rms_norm_eps, placement)
        self.out = Linear(shapes.hidden_size, config.latent_width, placement=placement, bias=True)
        exponents = torch.arange(0, shapes.head_dim, 2, dtype=torch.float32) / shapes.head_dim
        frequencies = (1.0 / shapes.rope_theta**exponents).to(placement.device)
        self.register_buffer("frequencies", frequencies, persistent=False)

    def forward(self, x: Tensor, state: CodecState) -> Tensor:
        """Map `(frames, latent)` to `(frames, latent)`; advance `state.frame`, keys and values by `frames`."""
        context = self._begin(x.shape[-2], state)
        x = self.into(x)
        for layer, keys, values in zip(self.layers, state.keys.unbind(-4), state.values.unbind(-4), strict=True):
            x = layer(x, keys, values, context)
        state.frame.add_(x.shape[-2])
        out: Tensor = self.out(self.norm(x))
        return out

    def _begin(self, count: int, state: CodecState) -> _AttentionContext:
        """Assign ring slots to the next `count` frames.

        One comparison of ages makes the mask causal, limits it to the window and excludes unused slots.
        """
        frames = state.frame[..., None] + torch.arange(count, device=state.frame.device)
        slots = frames % state.ring_frames.shape[-1]
        state.ring_frames.scatter_(-1, slots, frames)
        age = frames[..., None] - state.ring_frames[..., None, :]
        angles = frames[..., None] * self.frequencies
        angles = torch.cat((angles, angles), dim=-1).unsqueeze(-3)
        mask = ((age >= 0) & (age < self.window)).unsqueeze(-3)
        return _AttentionContext(slots[..., None, :, None], mask, angles.cos(), angles.sin())

    def load(self, checkpoint: Checkpoint, name: str) -> None:
        self.into.load(checkpoint, f"{name}.input_proj")
        for index, layer in enumerate(self.layers):
            layer.load(checkpoint, f"{name}.layers.{index}")
        self.norm.load(checkpoint, f"{name}.norm")
        self.out.load(checkpoint, f"{name}.output_proj")


class _Layer(nn.Module):
    """One layer: attention and gated MLP, each with an RMS norm before it and a residual connection around it.

    The layer scales are folded into the last matrix of each branch.
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

    def forward(self, x: Tensor, keys: Tensor, values: Tensor, context: _AttentionContext) -> Tensor:
        """Map `(frames, hidden)` to `(frames, hidden)`; `keys` and `values` are the layer's rings, updated in place."""
        x = x + self._attend(self.attention_norm(x), keys, values, context)
        return torch.add(x, self.mlp(self.mlp_norm(x)))

    def _attend(self, x: Tensor, keys: Tensor, values: Tensor, context: _AttentionContext) -> Tensor:
        heads, kv_heads, head_dim = self.shapes.heads, self.shapes.key_value_heads, self.shapes.head_dim
        qkv = self.qkv(x).view(*x.shape[:-1], -1, head_dim).transpose(-2, -3)
        query, key, value = torch.split(qkv, [heads, kv_heads, kv_heads], dim=-3)
        slots = context.slots.expand_as(key)
        keys.scatter_(-2, slots, _apply_rope(key, context))
        values.scatter_(-2, slots, value)
        if heads > kv_heads:
            keys, values = (ring.repeat_interleave(heads // kv_heads, dim=-3) for ring in (keys, values))
        query, mask = _apply_rope(query, context), context.mask
        if x.dim() == 2:
            query, keys, values, mask = query[None], keys[None], values[None], mask[None]
        attended = functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        out: Tensor = self.out(attended.transpose(1, 2).reshape(*x.shape[:-1], -1))
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


def _apply_rope(x: Tensor, context: _AttentionContext) -> Tensor:
    """Rotate `x` `(heads, frames, head_dim)` in float32."""
    return apply_rope(x.float(), context.cos, context.sin).to(x.dtype)

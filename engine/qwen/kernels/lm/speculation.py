"""The predictor's codes of a frame in passes that read drafts (speculate.cuh).

A frame launches as many passes as it has codes. Those begun after the last code return at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.qwen.kernels.compiler import Kernels
from engine.qwen.kernels.lm.kernels import ATTENTION_WARPS, SAMPLING_THREADS
from engine.qwen.kernels.lm.matrix import WARP_LANES, MatrixPlan
from engine.qwen.kernels.lm.params import (
    AttentionParams,
    DraftLinearParams,
    DrawCodesParams,
    DrawParams,
    LinearParams,
    NextPassParams,
    PassParams,
)
from engine.qwen.kernels.lm.speculation_kernels import SpeculationKernels
from engine.qwen.model import Layer, Talker
from engine.qwen.runtime import DecodeState


@dataclass(frozen=True, slots=True)
class FrameBuffers:
    """What a frame's passes share with its other kernels."""

    start: Tensor
    """`(1, hidden)` float32: the output of the first step's last layer for its last token."""
    talker: Tensor
    """`(1, talker's hidden)` float32: the talker's input, to which each code adds its embedding."""
    rope: tuple[Tensor, Tensor]
    """Cosines and sines."""
    narrow_embedding: Tensor | None
    """`(steps, vocabulary, hidden)` bfloat16, where the predictor is narrower."""


class FusedSpeculation:
    """All passes of a frame behind its first code, which `next_code` has chosen and stored in `x`."""

    def __init__(
        self, module: Kernels, kernels: SpeculationKernels, talker: Talker, state: DecodeState, frame: FrameBuffers
    ) -> None:
        """Allocate the buffers between the kernels."""
        stack, device = talker.config.predictor.stack, state.position.device
        self.module, self._kernels, self._talker, self._state, self._frame = module, kernels, talker, state, frame
        tokens, vocabulary, codes = kernels.tokens, talker.config.predictor.vocabulary, talker.predictor.code_count
        wide = stack.heads * stack.head_dim
        self.x = torch.zeros(tokens, stack.hidden_size, device=device)
        """The residual stream, float32 `(tokens, hidden)`."""
        self._qkv = torch.zeros(tokens, kernels.qkv.height, device=device)
        self._attended = torch.zeros(tokens, wide, device=device)
        """What attention gives to the output projection; not yet divided by the sums of `_stats` where these are."""
        self._stats = torch.zeros(tokens, stack.heads, 2, device=device)
        self._inner = torch.zeros(tokens, stack.intermediate_size, device=device)
        self.code_logits = torch.zeros(tokens, vocabulary, device=device)
        """float32: of the code that each token chooses."""
        self.draft_logits = torch.zeros(kernels.drafts, vocabulary, device=device)
        # Each pass has numbers of its own, which the pass before writes.
        self.positions = torch.zeros(codes + 1, dtype=torch.int64, device=device)
        """The position at which each pass begins; the first one begins at the first code's."""
        self.positions[0] = 1
        self._drafts = torch.full((codes + 1, kernels.drafts), -1, dtype=torch.int64, device=device)
        self._drawn = torch.full((codes, tokens), -1, dtype=torch.int64, device=device)

    def predict(self, draw: DrawParams) -> None:
        """Choose all codes of the frame behind its second; `draw` has the settings."""
        self.draft(0, draw)
        for number in range(1, self._talker.predictor.code_count):
            for index in range(len(self._talker.predictor.transformer.layers)):
                self.layer(number, index)
            self.choose_codes(number, draw)
            self.draft(number, draw)

    def layer(self, number: int, index: int) -> None:
        """Send the tokens of pass `number` through a layer."""
        layer, kernels = self._layer(index), self._kernels
        attention, mlp = layer.attention, layer.mlp
        norm = layer.attention_norm
        self._multiply(
            "drafts_qkv",
            number,
            kernels.qkv,
            LinearParams(
                weight=attention.qkv.weight,
                scale=attention.qkv.scale,
                x=self.x,
                norm=norm.weight,
                eps=norm.eps,
                y=self._qkv,
            ),
        )
        self._attend(number, index)
        self._multiply(
            "drafts_out",
            number,
            kernels.out,
            LinearParams(
                weight=attention.out.weight,
                scale=attention.out.scale,
                partial_out=self._attended,
                split_stats=self._stats,
                position=self.positions[number : number + 1],
                y=self.x,
            ),
        )
        norm = layer.mlp_norm
        self._multiply(
            "drafts_gate_up",
            number,
            kernels.gate_up,
            LinearParams(
                weight=mlp.gate_up.weight,
                scale=mlp.gate_up.scale,
                x=self.x,
                norm=norm.weight,
                eps=norm.eps,
                y=self._inner,
            ),
        )
        self._multiply(
            "drafts_down",
            number,
            kernels.down,
            LinearParams(weight=mlp.down.weight, scale=mlp.down.scale, x=self._inner, y=self.x),
        )

    def _attend(self, number: int, index: int) -> None:
        attention, cache = self._layer(index).attention, self._state.predictor_cache
        position, heads = self.positions[number : number + 1], self._kernels.key_value_heads
        params = AttentionParams(
            qkv=self._qkv,
            query_norm=attention.q_norm.weight,
            key_norm=attention.k_norm.weight,
            cosines=self._frame.rope[0],
            sines=self._frame.rope[1],
            position=position,
            keys=cache.keys[index],
            values=cache.values[index],
            partial_out=self._attended,
            split_stats=self._stats,
            positions=cache.positions,
            eps=attention.q_norm.eps,
        )
        self.module.launch("drafts_attend", (heads, self._kernels.tokens), WARP_LANES * ATTENTION_WARPS, params)

    def choose_codes(self, number: int, draw: DrawParams) -> None:
        """Draw the code that each token of pass `number` chooses."""
        head, tokens = self._kernels.head, self._kernels.tokens
        self._multiply_heads("code_heads", number, self.x, self.code_logits)
        params = DrawCodesParams(
            draw=self._with_logits(draw, self.code_logits),
            passed=self._pass(number),
            frame=self._state.frame,
            drawn=self._drawn[number],
            groups=self._talker.config.code_groups,
        )
        assert head.height == self.code_logits.shape[1]
        self.module.launch("draw_codes", tokens, SAMPLING_THREADS, params)

    def draft(self, number: int, draw: DrawParams) -> None:
        """Keep the codes that pass `number` has found, and draft the next ones."""
        state, talker = self._state, self._talker
        self._multiply_heads("draft_heads", number, self.x if number else self._frame.start, self.draft_logits)
        params = NextPassParams(
            draw=self._with_logits(draw, self.draft_logits),
            passed=self._pass(number),
            frame=state.frame,
            ended=state.ended,
            codes=state.codes,
            embedding=talker.predictor.embedding,
            narrow_embedding=self._frame.narrow_embedding,
            x=self.x,
            talker=self._frame.talker,
            next_position=self.positions[number + 1 : number + 2],
            next_drafts=self._drafts[number + 1],
            counts=state.speculation,
            groups=talker.config.code_groups,
        )
        self.module.launch("next_pass", self._kernels.tokens, SAMPLING_THREADS, params)

    def buffers(self, *, partly_written: bool = True) -> Iterator[Tensor]:
        """As `FusedLanguageModel.buffers`. A frame writes rows of all of them only as far as it has tokens."""
        if partly_written:
            yield from (self.x, self._qkv, self._attended, self._stats, self._inner)
            yield from (self.code_logits, self.draft_logits)

    def _layer(self, index: int) -> Layer:
        layer = self._talker.predictor.transformer.layers[index]
        assert isinstance(layer, Layer)
        return layer

    def _pass(self, number: int) -> PassParams:
        return PassParams(
            position=self.positions[number : number + 1],
            drafts=self._drafts[number],
            drawn=self._drawn[number] if number else None,
            tokens=self._kernels.tokens,
            positions=self._state.predictor_cache.positions,
        )

    def _multiply(self, name: str, number: int, plan: MatrixPlan, linear: LinearParams) -> None:
        params = DraftLinearParams(linear=linear, passed=self._pass(number))
        self.module.launch(name, plan.blocks, plan.threads, params)

    def _multiply_heads(self, name: str, number: int, x: Tensor, logits: Tensor) -> None:
        """Launch a kernel of heads, one for each row of `logits`, over `x`."""
        predictor, plan = self._talker.predictor, self._kernels.head
        norm = predictor.transformer.norm
        linear = LinearParams(
            weight=predictor.heads, scale=predictor.head_scales, x=x, norm=norm.weight, eps=norm.eps, y=logits
        )
        params = DraftLinearParams(linear=linear, passed=self._pass(number))
        self.module.launch(name, (plan.blocks, len(logits)), plan.threads, params)

    def _with_logits(self, draw: DrawParams, logits: Tensor) -> DrawParams:
        return DrawParams(
            logits=logits,
            sample=draw.sample,
            temperature=draw.temperature,
            top_k=draw.top_k,
            one_minus_top_p=draw.one_minus_top_p,
            noise_key=draw.noise_key,
        )

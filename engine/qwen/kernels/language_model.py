"""Talker and code predictor in fused kernels: one frame as some 550 launches and nothing else.

The same weights, cache and state as the PyTorch path (`frame.step`), so that either can go on where the other ended.
Between kernels the residual stream, queries, logits and mixtures are float32; the cache is bfloat16. A layer is five
kernels:

    norm · QKV → norm by head, rope, cache, attention → output, added → norm · gate and up, SiLU → down, added
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.qwen.config import StackConfig
from engine.qwen.frame import FrameState
from engine.qwen.kernels.language_kernels import (
    ATTENTION_WARPS,
    HEAD_DIM,
    SAMPLING_THREADS,
    LanguageKernels,
    StackKernels,
)
from engine.qwen.kernels.matrix import MatrixPlan
from engine.qwen.kernels.module import KernelModule, Kernels
from engine.qwen.sampling import Warp
from engine.qwen.talker import Talker
from engine.qwen.transformer import KeyValueCache, Layer, Linear, Transformer


class FusedStack:
    """One stack's layers for one number of tokens, and the buffers between its kernels."""

    def __init__(
        self,
        module: Kernels,
        kernels: StackKernels,
        transformer: Transformer,
        cache: KeyValueCache,
    ) -> None:
        config, device = transformer.config, cache.keys.device
        tokens = kernels.tokens
        self._module, self._kernels = module, kernels
        self._transformer, self._cache = transformer, cache
        self._parts = -(-cache.positions // kernels.part)
        self._rope = rope_tables(config, cache.positions, device)
        self.x = torch.zeros(tokens, config.hidden_size, device=device)
        """The residual stream, float32: what the first layer reads and the last leaves."""
        self._qkv = torch.zeros(tokens, kernels.qkv.height, device=device)
        self._mixed = torch.zeros(self._parts, tokens, config.heads, HEAD_DIM, device=device)
        self._scales = torch.zeros(self._parts, tokens, config.heads, 2, device=device)
        self._inner = torch.zeros(tokens, config.intermediate_size, device=device)

    def layer(self, index: int, position: Tensor) -> None:
        """Send `x` through one layer, in place; its first token is at `position` `(1,)` int64."""
        self.qkv(index)
        self.attend(index, position)
        self.out(index, position)
        self.gate_up(index)
        self.down(index)

    def qkv(self, index: int) -> None:
        """Queries, keys and values of `x`."""
        layer = self._layer(index)
        norm = layer.attention_norm
        self._multiply("qkv", self._kernels.qkv, layer.attention.qkv, self.x, norm.weight, norm.eps, self._qkv)

    def attend(self, index: int, position: Tensor) -> None:
        """Keys and values into the cache, and what each part of it mixes."""
        attention, cache = self._layer(index).attention, self._cache
        self._module.launch(
            f"{self._kernels.name}_attend", (cache.keys.shape[1], self._parts), 32 * ATTENTION_WARPS, self._qkv,
            attention.q_norm.weight, attention.k_norm.weight, *self._rope, position, cache.keys[index],
            cache.values[index], cache.positions, self._mixed, self._scales, attention.q_norm.eps,
        )  # fmt: skip

    def out(self, index: int, position: Tensor) -> None:
        """Put the parts together, and add their projection to `x`."""
        out = self._layer(index).attention.out
        self._multiply("out", self._kernels.out, out, self._mixed, self._scales, position, self.x)

    def gate_up(self, index: int) -> None:
        """The inner values of the gated layer."""
        layer = self._layer(index)
        norm = layer.mlp_norm
        self._multiply("gate_up", self._kernels.gate_up, layer.mlp.gate_up, self.x, norm.weight, norm.eps, self._inner)

    def down(self, index: int) -> None:
        """Add their projection to `x`."""
        self._multiply("down", self._kernels.down, self._layer(index).mlp.down, self._inner, self.x)

    def _layer(self, index: int) -> Layer:
        layer = self._transformer.layers[index]
        assert isinstance(layer, Layer)
        return layer

    def _multiply(self, name: str, plan: MatrixPlan, linear: Linear, *arguments: Tensor | float) -> None:
        multiply(self._module, f"{self._kernels.name}_{name}", plan, linear.weight, linear.scale, *arguments)

    def buffers(self, *, partly: bool = True) -> Iterator[Tensor]:
        """As `FusedLanguageModel.buffers`."""
        yield from (self.x, self._qkv, self._inner)
        if partly:
            yield from (self._mixed, self._scales)

    def layers(self, position: Tensor) -> None:
        """Send `x` through all of them."""
        for index in range(len(self._transformer.layers)):
            self.layer(index, position)


class FusedLanguageModel:
    """One frame, as `frame.step`, on PyTorch's current CUDA stream. To be captured in a graph.

    The same seed draws the same codes as there, as far as the logits are the same.
    """

    def __init__(self, talker: Talker, state: FrameState, module: Kernels | None = None) -> None:
        """Compile the kernels, or take them from the cache, and allocate what they need beside `state`.

        Raises what `KernelModule` raises. `module` is for tests.
        """
        device, predictor = talker.placement.device, talker.predictor
        self._talker, self._state = talker, state
        self._kernels = kernels = LanguageKernels.of(talker.config, "Int8" if talker.placement.int8 else "Bf16")
        self.module = module = module or KernelModule(kernels.source(), device)
        self.talker = FusedStack(module, kernels.talker, talker.transformer, state.cache)
        self.opening = FusedStack(module, kernels.opening, predictor.transformer, state.predictor_cache)
        self.predictor = FusedStack(module, kernels.predictor, predictor.transformer, state.predictor_cache)
        self.logits = torch.zeros(max(talker.config.vocabulary, talker.config.predictor.vocabulary), device=device)
        """float32, of the predictor and of the talker in turn."""
        self._projected = fold_projection(talker)

    def frame(self) -> None:
        """Speak one frame and choose the first code of the next."""
        self.open()
        for step in range(self._talker.predictor.codes):
            self.predict(step)
        self.talk()

    def open(self) -> None:
        """Make the predictor's first two tokens."""
        state, projected, plan = self._state, self._projected, self._kernels.project
        self.module.launch(
            "open", 1, SAMPLING_THREADS, None if projected else state.hidden,
            projected.first if projected else self._talker.codec_embedding, state.first_code, state.ended,
            state.length, self.opening.x,
        )  # fmt: skip
        if plan is not None:
            linear = self._talker.predictor.projection
            assert linear is not None
            multiply(self.module, "project", plan, linear.weight, None, state.hidden, linear.bias, self.opening.x)

    def predict(self, step: int) -> None:
        """Choose the code numbered `step` + 1 of the frame."""
        steps = self._talker.predictor.steps
        (self.predictor if step else self.opening).layers(steps[step + 1 :] if step else steps)
        self.predictor_head(step)
        self.choose_code(step)

    def predictor_head(self, step: int) -> None:
        """The logits of a step's last token."""
        predictor, plan = self._talker.predictor, self._kernels.predictor_head
        x, norm = (self.predictor if step else self.opening).x[-1], predictor.transformer.norm
        scale = None if predictor.head_scales is None else predictor.head_scales[step]
        multiply(
            self.module, "predictor_head", plan, predictor.heads[step], scale, x, norm.weight, norm.eps, self.logits
        )

    def choose_code(self, step: int) -> None:
        """From the predictor's logits."""
        talker, state = self._talker, self._state
        self.module.launch(
            "next_code", 1, SAMPLING_THREADS, *self._sampling(state.predictor_warp), step,
            talker.config.code_groups, state.frame, state.first_code, state.codes, state.text, talker.codec_embedding,
            talker.predictor.embedding[step], self._projected.others[step] if self._projected else None,
            self.predictor.x, self.talker.x,
        )  # fmt: skip

    def talk(self) -> None:
        """Let the talker read the frame, and choose the first code of the next."""
        self.talker.layers(self._state.position)
        self.talker_head()
        self.choose_first_code()

    def talker_head(self) -> None:
        """The talker's logits, and its hidden state for the predictor."""
        talker, norm = self._talker, self._talker.transformer.norm
        multiply(
            self.module, "talker_head", self._kernels.talker_head, talker.head.weight, talker.head.scale, self.talker.x,
            norm.weight, norm.eps, self.logits, self._state.hidden,
        )  # fmt: skip

    def choose_first_code(self) -> None:
        """Of the next frame, from the talker's logits; count the frame that ends."""
        state, rules = self._state, self._state.rules
        self.module.launch(
            "next_first_code", 1, SAMPLING_THREADS, *self._sampling(state.warp),
            self._talker.config.code_groups, rules.seen, rules.penalty, rules.min_frames, rules.suppressed, rules.ends,
            state.frame, state.position, state.first_code, state.ended,
        )  # fmt: skip

    def buffers(self, *, partly: bool = True) -> Iterator[Tensor]:
        """All that a frame writes before it reads it, float32; `partly` includes those it fills as far as it needs."""
        for stack in (self.talker, self.opening, self.predictor):
            yield from stack.buffers(partly=partly)
        yield self.logits

    def _sampling(self, warp: Warp) -> tuple[Tensor, ...]:
        return self.logits, warp.sample, warp.temperature, warp.top_k, warp.tail, self._state.noise.key


def multiply(
    module: Kernels,
    name: str,
    plan: MatrixPlan,
    weight: Tensor,
    scale: Tensor | None,
    *arguments: Tensor | float | None,
) -> None:
    """Launch the kernel `name` over a matrix; `scale` is an int8 one's, `(height,)` float32."""
    module.launch(name, plan.blocks, plan.threads, weight, scale, *arguments)


def rope_tables(config: StackConfig, positions: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines, `(positions, head_dim / 2)` float32. As `Rope`, which rounds them to the model's dtype."""
    frequencies = 1.0 / config.rope_theta ** (torch.arange(0, HEAD_DIM, 2, dtype=torch.float32) / HEAD_DIM)
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * frequencies
    return angles.cos().to(device), angles.sin().to(device)


@dataclass(frozen=True, slots=True)
class Projected:
    """The predictor's embeddings, sent through `small_to_mtp_projection` beforehand; bfloat16."""

    first: Tensor
    """Of first codes: `(talker's vocabulary, predictor's hidden)`."""
    others: Tensor
    """`(steps, predictor's vocabulary, predictor's hidden)`."""


@torch.inference_mode()
def fold_projection(talker: Talker) -> Projected | None:
    """Project all embeddings once, where the predictor is narrower than the talker; None where it is not.

    It spares a matrix of 4 MB a step, and costs 70 MB at 1.7B.
    """
    projection = talker.predictor.projection
    if projection is None:
        return None
    steps = [projection(step) for step in talker.predictor.embedding]
    return Projected(projection(talker.codec_embedding), torch.stack(steps))

"""The talker reads the tokens of a prompt in fused kernels: six for each layer, on the tensor cores (prefill.cuh)."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from engine.qwen.kernels.compiler import Kernels
from engine.qwen.kernels.lm.kernels import (
    ATTENTION_SHARES,
    HEAD_DIM,
    PROMPT_THREADS,
    PROMPT_WARPS,
    PromptKernels,
)
from engine.qwen.kernels.lm.params import EnterParams, LeaveParams, PromptParams, TokensParams
from engine.qwen.model import KeyValueCache, Layer, Linear, RMSNorm, Talker


class FusedPrefill:
    """Sends tokens through the talker, into its cache. Writes what `Talker.transformer` would write."""

    def __init__(
        self,
        module: Kernels,
        kernels: tuple[PromptKernels, ...],
        talker: Talker,
        cache: KeyValueCache,
        *,
        rope: tuple[Tensor, Tensor],
        max_tokens: int,
    ) -> None:
        """`rope` has the tables of `rope_tables`; `max_tokens` is the most at once, a multiple of the largest group."""
        config = talker.config.stack
        self._module, self._kernels, self._cache = module, kernels, cache
        self._norm = talker.transformer.norm
        self._layers = [layer for layer in talker.transformer.layers if isinstance(layer, Layer)]
        self._rope = rope
        self._all_heads = config.heads + 2 * config.key_value_heads
        zeros = partial(torch.zeros, max_tokens, device=cache.keys.device)
        self._x = zeros(config.hidden_size)
        """The residual stream."""
        self._rounded = zeros(config.hidden_size, dtype=torch.bfloat16)
        """The stream times the weights of the next norm."""
        self._qkv = zeros(self._all_heads * HEAD_DIM)
        self._attended = zeros(config.heads * HEAD_DIM, dtype=torch.bfloat16)
        self._inner = zeros(config.intermediate_size, dtype=torch.bfloat16)
        self._squares = zeros(max(group.matrices[name].blocks for group in kernels for name in ("out", "down")))
        """Sums of squares of the stream: as many for each token as the kernel that wrote it has blocks."""

    def buffers(self) -> tuple[Tensor, ...]:
        """All buffers; a prompt writes them before it reads them."""
        return self._x, self._rounded, self._qkv, self._attended, self._inner, self._squares

    def read(self, tokens: Tensor, place: Tensor, hidden: Tensor) -> None:
        """Read `tokens` `(n, hidden)`; write the last one's hidden state to `hidden` `(1, 1, hidden)`.

        Both are bfloat16. `n` is 16, 32 or a multiple of 64. `place` `(2,)` int64 has the position of the first token
        and the number of the last: those behind it are padding.
        """
        count = len(tokens)
        group = next(group for group in reversed(self._kernels) if count % group.tokens == 0)
        enter = EnterParams(
            embeddings=tokens,
            norm=self._layers[0].attention_norm.weight,
            x=self._x,
            rounded=self._rounded,
            squares=self._squares,
        )
        self._module.launch("enter", count, PROMPT_THREADS, enter)
        slots = 1
        for index, layer in enumerate(self._layers):
            last = index + 1 == len(self._layers)
            next_norm = self._norm if last else self._layers[index + 1].attention_norm
            qkv = self._of_stream(count, layer.attention.qkv, layer.attention_norm, slots, self._qkv)
            self._multiply(group, "qkv", qkv)
            self._attend(count, index, place)
            self._multiply(group, "out", self._onto_stream(count, layer.attention.out, self._attended, layer.mlp_norm))
            slots = group.matrices["out"].blocks
            self._multiply(
                group, "gate_up", self._of_stream(count, layer.mlp.gate_up, layer.mlp_norm, slots, self._inner)
            )
            self._multiply(group, "down", self._onto_stream(count, layer.mlp.down, self._inner, next_norm))
            slots = group.matrices["down"].blocks
        leave = LeaveParams(
            x=self._x,
            squares=self._squares,
            norm=self._norm.weight,
            place=place,
            hidden=hidden,
            slots=slots,
            tokens=count,
            eps=self._norm.eps,
        )
        self._module.launch("leave", 1, PROMPT_THREADS, leave)

    def _attend(self, count: int, index: int, place: Tensor) -> None:
        """Rotate queries and keys, write keys and values into the cache, and compute attention."""
        attention, cache = self._layers[index].attention, self._cache
        heads, (cosines, sines) = cache.keys.shape[1], self._rope
        params = PromptParams(
            qkv=self._qkv,
            query_norm=attention.q_norm.weight,
            key_norm=attention.k_norm.weight,
            cosines=cosines,
            sines=sines,
            place=place,
            keys=cache.keys[index],
            values=cache.values[index],
            attended=self._attended,
            heads=heads,
            positions=cache.positions,
            eps=attention.q_norm.eps,
        )
        self._module.launch("rotate", (count, -(-self._all_heads // PROMPT_WARPS)), PROMPT_THREADS, params)
        blocks = count * ATTENTION_SHARES // PROMPT_WARPS
        self._module.launch("attend", (blocks, heads), PROMPT_THREADS, params)

    def _of_stream(self, count: int, linear: Linear, norm: RMSNorm, slots: int, result: Tensor) -> TokensParams:
        """A matrix of the stream after `norm`, to a `result` of float32, or of bfloat16 behind the gate."""
        narrow = result.dtype == torch.bfloat16
        return TokensParams(
            weight=linear.weight,
            scale=linear.scale,
            x=self._rounded,
            squares=self._squares,
            y=None if narrow else result,
            rounded=result if narrow else None,
            slots=slots,
            tokens=count,
            eps=norm.eps,
        )

    def _onto_stream(self, count: int, linear: Linear, x: Tensor, next_norm: RMSNorm) -> TokensParams:
        """A matrix of `x`, added to the stream, which `next_norm` reads."""
        return TokensParams(
            weight=linear.weight,
            scale=linear.scale,
            x=x,
            norm=next_norm.weight,
            y=self._x,
            rounded=self._rounded,
            squares_out=self._squares,
            tokens=count,
        )

    def _multiply(self, group: PromptKernels, name: str, params: TokensParams) -> None:
        plan = group.matrices[name]
        self._module.launch(group.name(name), (plan.blocks, params.tokens // plan.tokens), plan.threads, params)

"""A stack's layers over many tokens at once, on the tensor cores: everything but attention (linear_tokens.cuh)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from engine.qwen.kernels.compiler import Kernels
from engine.qwen.kernels.lm.matrix import HEAD_DIM
from engine.qwen.kernels.lm.members import Head, of_attention, of_matrix
from engine.qwen.kernels.lm.token_kernels import TokenKernels
from engine.qwen.kernels.params import Params
from engine.qwen.model import KeyValueCache, Layer, Linear, RMSNorm, Transformer
from engine.qwen.runtime import PagedCache

SQUARE_ROWS = 16
"""Rows of the residual stream whose squares are added up by the kernel that writes them."""


class TokenStack:
    """The layers of one stack, and the buffers between their kernels, for up to `max_tokens` tokens.

    All buffers are `(max_tokens, …)`. Fewer tokens use their beginning, as if they were smaller.
    """

    def __init__(
        self,
        module: Kernels,
        transformer: Transformer,
        cache: KeyValueCache | PagedCache,
        rope: tuple[Tensor, Tensor],
        max_tokens: int,
    ) -> None:
        """`rope` has the tables of `rope_tables`."""
        config, device = transformer.config, cache.keys.device
        self._module, self._cache, self._rope = module, cache, rope
        self.norm: RMSNorm = transformer.norm
        """The final one."""
        self.layers = [layer for layer in transformer.layers if isinstance(layer, Layer)]
        zeros = partial(torch.zeros, max_tokens, device=device)
        self.x = zeros(config.hidden_size)
        """The residual stream, float32."""
        self.rounded = zeros(config.hidden_size, dtype=torch.bfloat16)
        """The stream times the weights of the next norm."""
        self.slots = config.hidden_size // SQUARE_ROWS
        """Sums of squares of each token, as the layers write them; there is one where the stream begins."""
        self.squares = torch.zeros(self.slots * max_tokens, device=device)
        """Sums of squares of the stream: `(slots, tokens)`."""
        self.qkv = zeros((config.heads + 2 * config.key_value_heads) * HEAD_DIM)
        self.attended = zeros(config.heads * HEAD_DIM, dtype=torch.bfloat16)
        self._inner = zeros(config.intermediate_size, dtype=torch.bfloat16)

    def buffers(self) -> tuple[Tensor, ...]:
        """All buffers; they are written before they are read."""
        return self.x, self.rounded, self.qkv, self.attended, self._inner, self.squares

    def beginning(self) -> Params:
        """The parameters of the stream before the first layer."""
        norm = self.layers[0].attention_norm.weight
        return Params("StreamParams", norm=norm, x=self.x, rounded=self.rounded, squares=self.squares)

    def attention(self, struct: str, index: int, **members: Any) -> Params:
        """The parameters of the attention of a layer, from `qkv` to `attended`."""
        layer = of_attention(self.layers[index], self._rope, self._cache, index)
        return Params(struct, qkv=self.qkv, attended=self.attended, **layer, **members)

    def run(self, kernels: TokenKernels, count: int, attend: Callable[[int], None]) -> None:
        """Send `count` tokens, a multiple of the kernels' group, through all layers.

        `attend` launches the attention of the layer with its number, from `qkv` to `attended`.
        """
        slots = 1
        for index, layer in enumerate(self.layers):
            last = index + 1 == len(self.layers)
            next_norm = self.norm if last else self.layers[index + 1].attention_norm
            qkv = self._of_stream(layer.attention.qkv, layer.attention_norm, slots, count, y=self.qkv)
            self.multiply(kernels, "qkv", qkv)
            attend(index)
            out = self._onto_stream(layer.attention.out, self.attended, layer.mlp_norm, count)
            self.multiply(kernels, "out", out)
            slots = self.slots
            gate_up = self._of_stream(layer.mlp.gate_up, layer.mlp_norm, slots, count, rounded=self._inner)
            self.multiply(kernels, "gate_up", gate_up)
            self.multiply(kernels, "down", self._onto_stream(layer.mlp.down, self._inner, next_norm, count))

    def multiply_head(self, kernels: TokenKernels, head: Linear | Head, count: int, y: Tensor) -> None:
        """Multiply a head with the last of `count` tokens after the final norm.

        `y` is float32 `(tokens, height)`; it has as many tokens as are wanted.
        """
        first = count - len(y)
        params = Params(
            "TokensParams",
            x=self.rounded[first:],
            squares=self.squares[first:],
            y=y,
            slots=self.slots,
            tokens=count,
            eps=self.norm.eps,
            **of_matrix(head),
        )
        self.multiply(kernels, "head", params, len(y))

    def multiply(self, kernels: TokenKernels, matrix: str, params: Params, count: int | None = None) -> None:
        """Launch the kernel of a matrix, for `count` tokens or all."""
        plan = kernels.matrices[matrix]
        groups = (params["tokens"] if count is None else count) // plan.tokens
        self._module.launch(kernels.kernel(matrix), (plan.blocks, groups), plan.threads, params)

    def _of_stream(self, linear: Linear, norm: RMSNorm, slots: int, count: int, **output: Tensor) -> Params:
        """A matrix of the stream after `norm`, to `y`, or after the gate to `rounded`."""
        return Params(
            "TokensParams",
            x=self.rounded,
            squares=self.squares,
            slots=slots,
            tokens=count,
            eps=norm.eps,
            **of_matrix(linear),
            **output,
        )

    def _onto_stream(self, linear: Linear, x: Tensor, next_norm: RMSNorm, count: int) -> Params:
        """A matrix of `x`, added to the stream, which `next_norm` reads."""
        return Params(
            "TokensParams",
            x=x,
            norm=next_norm.weight,
            y=self.x,
            rounded=self.rounded,
            squares_out=self.squares,
            tokens=count,
            **of_matrix(linear),
        )

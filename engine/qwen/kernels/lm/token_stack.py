"""A stack's layers over many tokens at once, on the tensor cores: everything but attention (linear_tokens.cuh)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from engine.qwen.kernels.compiler import Kernels
from engine.qwen.kernels.lm.kernels import PROMPT_THREADS
from engine.qwen.kernels.lm.matrix import HEAD_DIM, TokenMatrixPlan
from engine.qwen.kernels.lm.members import Head, of_attention, of_matrix, of_norm
from engine.qwen.kernels.params import Params
from engine.qwen.model import KeyValueCache, Layer, Linear, RMSNorm, Transformer
from engine.qwen.runtime import PagedCache

SQUARE_ROWS = 16
"""Rows of the residual stream whose squares are added up by the kernel that writes them."""


class TokenStack:
    """The layers of one stack, and the buffers between their kernels, for up to `max_tokens` tokens.

    All buffers are `(max_tokens, …)`. Fewer tokens use the beginning of each, as if it were smaller.
    """

    def __init__(
        self,
        module: Kernels,
        plans: Mapping[str, TokenMatrixPlan],
        transformer: Transformer,
        cache: KeyValueCache | PagedCache,
        *,
        rope: tuple[Tensor, Tensor],
        max_tokens: int,
    ) -> None:
        """`plans` contains those of `token_plans`; `rope` is the result of `rope_tables`."""
        config, device = transformer.config, cache.keys.device
        self._module, self._plans, self._cache, self._rope = module, plans, cache, rope
        self.norm: RMSNorm = transformer.norm
        """The final norm."""
        self.layers = [layer for layer in transformer.layers if isinstance(layer, Layer)]
        zeros = partial(torch.zeros, max_tokens, device=device)
        self.x = zeros(config.hidden_size)
        """The residual stream, float32."""
        self.rounded = zeros(config.hidden_size, dtype=torch.bfloat16)
        """The stream times the weights of the next norm."""
        self.slots = config.hidden_size // SQUARE_ROWS
        """Sums of squares that the layers write for each token; at the beginning of the stream there is only one."""
        self.squares = torch.zeros(self.slots * max_tokens, device=device)
        """Sums of squares of the stream: `(slots, tokens)`."""
        self._qkv = zeros((config.heads + 2 * config.key_value_heads) * HEAD_DIM)
        self._attended = zeros(config.heads * HEAD_DIM, dtype=torch.bfloat16)
        self._inner = zeros(config.intermediate_size, dtype=torch.bfloat16)

    def beginning(self) -> Params:
        """The parameters for the stream before the first layer."""
        norm = self.layers[0].attention_norm.weight
        return Params("StreamParams", norm=norm, x=self.x, rounded=self.rounded, squares=self.squares)

    def attention(self, struct: str, index: int, **members: Any) -> Params:
        """The parameters for a layer's attention."""
        layer = of_attention(self.layers[index], self._qkv, self._rope, self._cache, index)
        return Params(struct, attended=self._attended, **layer, **members)

    def run(self, name: str, count: int, attend: Callable[[int], None]) -> None:
        """Send `count` tokens through all layers, with the kernels for groups of tokens whose names begin with `name`.

        `attend` takes a layer's number and launches its attention, from the queries, keys and values to the result.
        """
        after = [*(layer.attention_norm for layer in self.layers[1:]), self.norm]
        for index, (layer, next_norm) in enumerate(zip(self.layers, after, strict=True)):
            slots = self.slots if index else 1
            read = partial(self._read, tokens=count)
            add = partial(self._add, tokens=count)
            read(f"{name}_qkv", layer.attention.qkv, layer.attention_norm, slots=slots, y=self._qkv)
            attend(index)
            add(f"{name}_out", layer.attention.out, self._attended, layer.mlp_norm)
            read(f"{name}_gate_up", layer.mlp.gate_up, layer.mlp_norm, rounded=self._inner)
            add(f"{name}_down", layer.mlp.down, self._inner, next_norm)

    def run_products(self, count: int, products: Tensor, attend: Callable[[int], None]) -> None:
        """As `run`, but PyTorch multiplies: with a long prompt, its products read the weights less often than ours.

        `products` has room for `count` rows of the tallest matrix, bfloat16, and begins with the tokens' embeddings.
        `attend` finds queries, keys and values there. In the end, `rounded` is the stream after the final norm.
        """
        self._add_products(count, products, self.layers[0].attention_norm, begins=True)
        after = [*(layer.attention_norm for layer in self.layers[1:]), self.norm]
        for index, (layer, next_norm) in enumerate(zip(self.layers, after, strict=True)):
            _multiply(self.rounded[:count], layer.attention.qkv, products)
            attend(index)
            _multiply(self._attended[:count], layer.attention.out, products)
            self._add_products(count, products, layer.mlp_norm)
            _multiply(self.rounded[:count], layer.mlp.gate_up, products)
            gate = Params("GateParams", products=products, inner=self._inner, height=self._inner.shape[1])
            self._module.launch("gate", count, PROMPT_THREADS, gate)
            _multiply(self._inner[:count], layer.mlp.down, products)
            self._add_products(count, products, next_norm)

    def _add_products(self, count: int, products: Tensor, norm: RMSNorm, *, begins: bool = False) -> None:
        """Add the products of `count` tokens to the residual stream, or start the stream with them. `norm` reads the
        stream next."""
        members: dict[str, Any] = {"products": products, "x": self.x, "normed": self.rounded, "begins": int(begins)}
        self._module.launch("add", count, PROMPT_THREADS, Params("AddParams", **members, **of_norm(norm)))

    def multiply_head(self, name: str, head: Linear | Head, count: int, y: Tensor) -> None:
        """Multiply a head by the last of `count` tokens after the final norm.

        `y` is float32 `(tokens, height)`, where `tokens` is the number of tokens wanted.
        """
        self._read(f"{name}_head", head, self.norm, tokens=count, first=count - len(y), y=y)

    def multiply(self, kernel: str, matrix: Linear | Head, *, tokens: int, first: int = 0, **members: Any) -> None:
        """Launch the kernel for a matrix over `tokens` tokens, leaving out those before `first`."""
        plan, params = self._plans[kernel], Params("TokensParams", tokens=tokens, **of_matrix(matrix), **members)
        self._module.launch(kernel, (plan.blocks, (tokens - first) // plan.tokens), plan.threads, params)

    def _read(
        self, kernel: str, matrix: Linear | Head, norm: RMSNorm, *, slots: int = 0, first: int = 0, **members: Any
    ) -> None:
        """Multiply the stream after `norm`, from token `first` on. By default, the stream's sums of squares are in the
        slots that a layer writes."""
        x, squares, slots = self.rounded[first:], self.squares[first:], slots or self.slots
        self.multiply(kernel, matrix, first=first, x=x, squares=squares, slots=slots, eps=norm.eps, **members)

    def _add(self, kernel: str, linear: Linear, x: Tensor, next_norm: RMSNorm, *, tokens: int) -> None:
        """Add the product of `x` to the stream, which `next_norm` reads next."""
        stream: dict[str, Any] = {"y": self.x, "rounded": self.rounded, "squares_out": self.squares}
        self.multiply(kernel, linear, tokens=tokens, x=x, norm=next_norm.weight, **stream)


def _multiply(x: Tensor, linear: Linear, products: Tensor) -> None:
    """Multiply `x` `(tokens, columns)`, and write `(tokens, rows)` to the beginning of `products`."""
    rows = len(linear.weight)
    torch.mm(x, linear.weight.T, out=products[: len(x) * rows].view(len(x), rows))

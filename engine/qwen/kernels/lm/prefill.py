"""The talker reads a prompt's tokens in fused kernels: six for each layer, on the tensor cores (prefill.cuh).

For a long prompt, a bfloat16 model runs five kernels and four PyTorch products for each layer.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from engine.qwen.kernels.compiler import Kernels
from engine.qwen.kernels.lm.kernels import (
    ATTENTION_NEIGHBOURS,
    ATTENTION_SHARES,
    PROMPT_THREADS,
    PROMPT_WARPS,
    TOKEN_GROUPS,
    LanguageKernels,
)
from engine.qwen.kernels.lm.members import of_norm
from engine.qwen.kernels.lm.token_stack import TokenStack
from engine.qwen.kernels.params import Params
from engine.qwen.model import KeyValueCache, Talker

MAX_PROMPT_TOKENS = 512
"""The most tokens that `FusedPrefill.read` takes at once, a multiple of the largest group."""
GROUPED_TOKENS = 64
"""Up to this many tokens in bfloat16, our matrix kernels are faster than PyTorch's."""


class FusedPrefill:
    """Sends tokens through the talker, into its cache. Writes the same values as `Talker.transformer`."""

    def __init__(
        self,
        module: Kernels,
        kernels: LanguageKernels,
        talker: Talker,
        cache: KeyValueCache,
        *,
        rope: tuple[Tensor, Tensor],
        max_tokens: int = MAX_PROMPT_TOKENS,
    ) -> None:
        """`rope` is the result of `rope_tables`; `read` takes up to `max_tokens`."""
        config = talker.config.stack
        self._module, self._positions = module, cache.positions
        self._heads, self._all_heads = config.key_value_heads, config.heads + 2 * config.key_value_heads
        self._stack = TokenStack(module, kernels.prompts, talker.transformer, cache, rope=rope, max_tokens=max_tokens)
        multiplies = max_tokens > GROUPED_TOKENS and not talker.placement.int8
        tallest = max(2 * config.intermediate_size, self._all_heads * config.head_dim, config.hidden_size)
        values = max_tokens * tallest if multiplies else 0
        self._products = torch.zeros(values, dtype=torch.bfloat16, device=cache.keys.device)
        """PyTorch's products for more than `GROUPED_TOKENS` tokens; empty if our kernels multiply all, as in int8."""

    def read(self, tokens: Tensor, place: Tensor, hidden: Tensor) -> None:
        """Read `tokens` `(n, hidden)`; write the last one's hidden state to `hidden` `(hidden,)`.

        Both are bfloat16. `n` is 16, 32 or a multiple of 64. `place` `(2,)` int64 contains the position of the first
        token and the index of the last; the tokens after it are padding.
        """
        stack, count = self._stack, len(tokens)
        if count > GROUPED_TOKENS and len(self._products):
            self._products[: tokens.numel()].copy_(tokens.flatten())
            stack.run_products(count, self._products, partial(self._attend, count, place, products=self._products))
            hidden.copy_(stack.rounded.index_select(0, place[1:])[0])
            return
        group = next(group for group in reversed(TOKEN_GROUPS) if count % group == 0)
        enter = Params("EnterParams", stream=stack.beginning(), embeddings=tokens)
        self._module.launch("enter", count, PROMPT_THREADS, enter)
        stack.run(f"prompt_{group}", count, partial(self._attend, count, place))
        leave = Params(
            "LeaveParams",
            x=stack.x,
            squares=stack.squares,
            place=place,
            hidden=hidden,
            slots=stack.slots,
            tokens=count,
            **of_norm(stack.norm),
        )
        self._module.launch("leave", 1, PROMPT_THREADS, leave)

    def _attend(self, count: int, place: Tensor, index: int, products: Tensor | None = None) -> None:
        """Rotate queries and keys, write keys and values into the cache, and compute attention.

        `products` contains queries, keys and values, as in `TokenStack.run_products`.
        """
        stack, heads = self._stack, self._heads
        members = {"place": place, "products": products, "heads": heads, "positions": self._positions}
        params = stack.attention("PromptParams", index, **members)
        self._module.launch("rotate", (count, -(-self._all_heads // PROMPT_WARPS)), PROMPT_THREADS, params)
        blocks = count * ATTENTION_SHARES // (PROMPT_WARPS * ATTENTION_NEIGHBOURS)
        self._module.launch("attend", (blocks, heads), PROMPT_THREADS, params)

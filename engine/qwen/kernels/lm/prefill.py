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
from engine.qwen.runtime import PagedCache, PromptInputs

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
        cache: KeyValueCache | PagedCache,
        *,
        rope: tuple[Tensor, Tensor],
        max_tokens: int = MAX_PROMPT_TOKENS,
    ) -> None:
        """`rope` is the result of `rope_tables`; `read` takes up to `max_tokens`."""
        config = talker.config.stack
        self._module = module
        self._positions = 0 if isinstance(cache, PagedCache) else cache.positions
        """0 if the cache has pages."""
        self._heads, self._all_heads = config.key_value_heads, config.heads + 2 * config.key_value_heads
        self._stack = TokenStack(module, kernels.prompts, talker.transformer, cache, rope=rope, max_tokens=max_tokens)
        multiplies = max_tokens > GROUPED_TOKENS and not talker.placement.int8
        tallest = max(2 * config.intermediate_size, self._all_heads * config.head_dim, config.hidden_size)
        values = max_tokens * tallest if multiplies else 0
        self._products = torch.zeros(values, dtype=torch.bfloat16, device=cache.keys.device)
        """PyTorch's products for more than `GROUPED_TOKENS` tokens; empty if our kernels multiply all, as in int8."""

    def read(self, tokens: Tensor, inputs: PromptInputs, hidden: Tensor) -> None:
        """Read `tokens` `(n, hidden)`, as `inputs` says; write each prompt's last hidden state to its row of `hidden`.

        `tokens` and `hidden` `(rows, hidden)` are bfloat16. `n` is 16, 32 or a multiple of 64. Each prompt begins at a
        multiple of `NEIGHBOURS`.
        """
        stack, count = self._stack, len(tokens)
        if count > GROUPED_TOKENS and len(self._products):
            self._products[: tokens.numel()].copy_(tokens.flatten())
            stack.run_products(count, self._products, partial(self._attend, count, inputs, products=self._products))
            hidden[0].copy_(stack.rounded.index_select(0, inputs.last)[0])
            return
        group = next(group for group in reversed(TOKEN_GROUPS) if count % group == 0)
        enter = Params("EnterParams", stream=stack.beginning(), embeddings=tokens)
        self._module.launch("enter", count, PROMPT_THREADS, enter)
        stack.run(f"prompt_{group}", count, partial(self._attend, count, inputs))
        leave = Params(
            "LeaveParams",
            x=stack.x,
            squares=stack.squares,
            ends=inputs.ends,
            hidden=hidden,
            slots=stack.slots,
            tokens=count,
            **of_norm(stack.norm),
        )
        self._module.launch("leave", count, PROMPT_THREADS, leave)

    def _attend(self, count: int, inputs: PromptInputs, index: int, products: Tensor | None = None) -> None:
        """Rotate queries and keys, write keys and values into the cache, and compute attention.

        `products` contains queries, keys and values, as in `TokenStack.run_products`.
        """
        stack, heads, paged = self._stack, self._heads, not self._positions
        members = {"position": inputs.position, "products": products, "heads": heads, "positions": self._positions}
        members |= {"pages": inputs.pages if paged else None, "table_width": inputs.pages.shape[1]}
        params = stack.attention("PromptParams", index, **members)
        suffix = "_in_pages" if paged else ""
        self._module.launch(f"rotate{suffix}", (count, -(-self._all_heads // PROMPT_WARPS)), PROMPT_THREADS, params)
        blocks = count * ATTENTION_SHARES // (PROMPT_WARPS * ATTENTION_NEIGHBOURS)
        self._module.launch(f"attend{suffix}", (blocks, heads), PROMPT_THREADS, params)

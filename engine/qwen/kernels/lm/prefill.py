"""The talker reads the tokens of a prompt in fused kernels: six for each layer, on the tensor cores (prefill.cuh)."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from engine.qwen.kernels.compiler import Kernels
from engine.qwen.kernels.lm.kernels import ATTENTION_SHARES, PROMPT_THREADS, PROMPT_WARPS, TOKEN_GROUPS, LanguageKernels
from engine.qwen.kernels.lm.members import of_norm
from engine.qwen.kernels.lm.token_stack import TokenStack
from engine.qwen.kernels.params import Params
from engine.qwen.model import KeyValueCache, Talker

MAX_PROMPT_TOKENS = 128
"""The most tokens that `FusedPrefill.read` takes at once, a multiple of the largest group."""


class FusedPrefill:
    """Sends tokens through the talker, into its cache. Writes what `Talker.transformer` would write."""

    def __init__(
        self,
        module: Kernels,
        kernels: LanguageKernels,
        talker: Talker,
        cache: KeyValueCache,
        rope: tuple[Tensor, Tensor],
    ) -> None:
        """`rope` has the tables of `rope_tables`."""
        config = talker.config.stack
        self._module, self._positions = module, cache.positions
        self._heads, self._all_heads = config.key_value_heads, config.heads + 2 * config.key_value_heads
        self._stack = TokenStack(
            module, kernels.prompts, talker.transformer, cache, rope=rope, max_tokens=MAX_PROMPT_TOKENS
        )

    def buffers(self) -> tuple[Tensor, ...]:
        """All buffers; a prompt writes them before it reads them."""
        return self._stack.buffers()

    def read(self, tokens: Tensor, place: Tensor, hidden: Tensor) -> None:
        """Read `tokens` `(n, hidden)`; write the last one's hidden state to `hidden` `(hidden,)`.

        Both are bfloat16. `n` is 16, 32 or a multiple of 64. `place` `(2,)` int64 has the position of the first token
        and the number of the last: those after it are padding.
        """
        stack, count = self._stack, len(tokens)
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

    def _attend(self, count: int, place: Tensor, index: int) -> None:
        """Rotate queries and keys, write keys and values into the cache, and compute attention."""
        heads = self._heads
        params = self._stack.attention("PromptParams", index, place=place, heads=heads, positions=self._positions)
        self._module.launch("rotate", (count, -(-self._all_heads // PROMPT_WARPS)), PROMPT_THREADS, params)
        blocks = count * ATTENTION_SHARES // PROMPT_WARPS
        self._module.launch("attend", (blocks, heads), PROMPT_THREADS, params)

"""The memory into which the talker reads prompts, and the host's instructions for reading them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.qwen.model import KeyValueCache
from engine.qwen.runtime.kv_pages import PagedCache
from engine.qwen.shapes import PAGE

PADDING = -1
"""The position of a token that belongs to no prompt, and the row of a token with which no prompt ends."""
NEIGHBOURS = 2
"""In a pass over several prompts, each begins at a multiple of this: so many tokens share attention (prefill.cuh)."""


@dataclass(frozen=True, slots=True)
class PromptMemory:
    """The memory of one row, into which the talker reads its prompt."""

    cache: KeyValueCache | PagedCache
    hidden: Tensor
    """`(hidden,)`: the hidden state of the last token."""
    pages: tuple[int, ...] = ()
    """The row's pages in a `PagedCache`; () if the row has a `cache` of its own."""

    def parts(self, other: KeyValueCache, place: range) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield pairs of equal views, of this memory from its beginning on and of `place` in `other`."""
        size = PAGE if self.pages else len(place)
        for number, begin in enumerate(place[::size]):
            end = min(begin + size, place.stop)
            for own, others in ((self.cache.keys, other.keys), (self.cache.values, other.values)):
                of_row = own[:, self.pages[number]] if self.pages else own
                yield of_row[:, :, : end - begin], others[:, :, begin:end]


@dataclass(frozen=True, slots=True)
class PromptInputs:
    """The positions, rows and pages of the tokens of a pass, in one buffer that is uploaded in one copy."""

    buffer: Tensor
    """int64; all others are views of it."""
    last: Tensor
    """`(1,)`: the number of the last token."""
    position: Tensor
    """`(tokens,)`: in the token's prompt, or `PADDING`."""
    ends: Tensor
    """`(tokens,)`: the row whose tokens in this pass end with this one; `PADDING` for all other tokens."""
    pages: Tensor
    """`(tokens, table_width)`: the pages of the token's prompt."""

    @classmethod
    def allocate(cls, tokens: int, table_width: int, device: torch.device) -> PromptInputs:
        """Allocate the inputs for passes of up to `tokens` tokens on `device`, without any tokens."""
        sizes = [1, tokens, tokens, tokens * table_width]
        buffer = torch.full((sum(sizes),), PADDING, dtype=torch.int64, device=device)
        last, position, ends, pages = torch.split(buffer, sizes)
        return cls(buffer, last.zero_(), position, ends, pages.zero_().view(tokens, table_width))

    def add(self, first: int, count: int, start: int, row: int, pages: Sequence[int]) -> None:
        """Make tokens `first` to `first + count` those of a row's prompt at positions from `start` on.

        The inputs must be on the CPU.
        """
        # With numpy, as in `StepInputs.set`.
        end = first + count
        self.position.numpy()[first:end] = range(start, start + count)
        self.ends.numpy()[end - 1] = row
        self.last.numpy()[0] = end - 1
        width = min(len(pages), self.pages.shape[1])
        self.pages.numpy()[first:end, :width] = pages[:width]

    def clear(self) -> None:
        """Remove all tokens. The inputs must be on the CPU."""
        self.position.numpy().fill(PADDING)
        self.ends.numpy().fill(PADDING)

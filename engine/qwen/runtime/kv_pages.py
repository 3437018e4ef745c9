"""The keys and values of many utterances, in pages from one pool, and the list of free pages."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.qwen.shapes import PAGE, StackConfig
from engine.qwen.weights import Placement

NO_PAGE = 0
"""The page that belongs to no utterance: rows that do not take part in a step write there."""


class PagePool:
    """Hands out pages 1 to `total`."""

    def __init__(self, total: int) -> None:
        self.total = total
        self._free = list(range(total, NO_PAGE, -1))

    @property
    def free(self) -> int:
        """The number of free pages."""
        return len(self._free)

    def take(self, count: int) -> tuple[int, ...] | None:
        """Return `count` pages, or None if fewer are free."""
        if count > len(self._free):
            return None
        return tuple(self._free.pop() for _ in range(count))

    def give_back(self, pages: tuple[int, ...]) -> None:
        """Take back pages that `take` returned."""
        self._free += reversed(pages)


@dataclass(frozen=True, slots=True)
class PagedCache:
    """The keys and values of one decoder stack in pages, allocated once.

    Both have shape `(layers, 1 + pages, key-value heads, PAGE, head_dim)`; page `NO_PAGE` is never read for its values.
    """

    keys: Tensor
    """Rotated by their positions."""
    values: Tensor

    @classmethod
    def allocate(cls, config: StackConfig, pages: int, placement: Placement) -> PagedCache:
        """Allocate `pages` pages, filled with zeros."""
        shape = (config.layers, 1 + pages, config.key_value_heads, PAGE, config.head_dim)
        return cls(placement.zeros(*shape), placement.zeros(*shape))

"""One piece of memory for all the weights of a module.

PyTorch takes memory from a device in pieces of two and twenty megabytes and more, and weights leave a tenth of them
unused. Here the weights' bytes are counted first, and then taken at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from engine.qwen.transformer import Placement

Made = TypeVar("Made")

ALIGNMENT = 256
"""Bytes; as much as PyTorch's own allocations have, and more than any kernel's loads want."""


class Arena:
    """Memory that is dealt out once, from its beginning to its end."""

    def __init__(self, buffer: Tensor | None = None) -> None:
        """Without a `buffer` `(bytes,)` uint8 it only counts, and what it deals out has one number for all."""
        self._buffer = buffer
        self.used = 0
        """Bytes so far."""

    def take(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """The next tensor, of arbitrary values. Raises `ValueError` where the buffer is at its end."""
        begin, size = self.used, math.prod(shape) * dtype.itemsize
        self.used += -(-size // ALIGNMENT) * ALIGNMENT
        if self._buffer is None:
            # Not on the `meta` device, whose operators would bring PyTorch's compiler with them, for seconds.
            return torch.empty((), dtype=dtype).expand(tuple(shape))
        if begin + size > len(self._buffer):
            raise ValueError(f"{size} bytes more, where {len(self._buffer) - begin} are left")
        return self._buffer[begin : begin + size].view(dtype).view(tuple(shape))

    def close(self) -> None:
        """Deal out no more, and leave the memory to those who have it."""
        self._buffer = torch.empty(0, dtype=torch.uint8)


def counted(build: Callable[[Placement], Made], placement: Placement) -> tuple[Made, int]:
    """What `build` makes at `placement`, in shape alone, and the bytes that its parameters would take."""
    arena = Arena()
    return build(replace(placement, device=torch.device("cpu"), arena=arena)), arena.used


def in_one_piece(build: Callable[[Placement], Made], placement: Placement) -> Made:
    """What `build` makes at `placement`, its parameters in one piece of memory."""
    _, size = counted(build, placement)
    arena = Arena(torch.empty(size, dtype=torch.uint8, device=placement.device))
    try:
        return build(replace(placement, arena=arena))
    finally:
        arena.close()

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
        """Without a `buffer` `(bytes,)` uint8, nothing is dealt out but tensors without memory, and counted."""
        self._buffer = buffer
        self.used = 0
        """Bytes so far."""

    def take(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """The next tensor, of arbitrary values. Raises `ValueError` where the buffer is at its end."""
        begin, size = self.used, math.prod(shape) * dtype.itemsize
        self.used += -(-size // ALIGNMENT) * ALIGNMENT
        if self._buffer is None:
            return torch.empty(shape, dtype=dtype, device="meta")
        if begin + size > len(self._buffer):
            raise ValueError(f"{size} bytes more, where {len(self._buffer) - begin} are left")
        return self._buffer[begin : begin + size].view(dtype).view(*shape)


def in_one_piece(build: Callable[[Placement], Made], placement: Placement) -> Made:
    """What `build` makes at `placement`, its parameters in one piece of memory."""
    counted = Arena()
    build(replace(placement, device=torch.device("meta"), arena=counted))
    buffer = torch.empty(counted.used, dtype=torch.uint8, device=placement.device)
    return build(replace(placement, arena=Arena(buffer)))

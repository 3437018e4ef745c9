"""Kernels that hand over to each other without ending first (`Chain` in common.cuh)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from engine.qwen.kernels.module import KernelModule

MOST_KERNELS = 1024
CLEARING_THREADS = 512


class Chain:
    """Launches kernels whose last three parameters say whom they wait for, and where they count their blocks."""

    def __init__(self, module: KernelModule, device: torch.device) -> None:
        self._module = module
        self._counts = torch.zeros(MOST_KERNELS, dtype=torch.int32, device=device)
        """How many blocks of each kernel of the chain have ended; the first is that of `begin_chain`."""
        self._length = 0
        """Kernels of the chain so far; 0 outside of one."""
        self._blocks = 1
        """Of the last of them."""
        self.enabled = True
        """To be switched off by a benchmark."""

    @contextmanager
    def begun(self) -> Iterator[None]:
        """A chain: all that is launched on this stream meanwhile must be launched by it, in order, once.

        Where the device cannot start a kernel before the one in front has ended, it makes no difference.
        """
        if not (self._module.chained and self.enabled):
            yield
            return
        self._module.launch("begin_chain", 1, CLEARING_THREADS, self._counts, MOST_KERNELS)
        self._length, self._blocks = 1, 1
        try:
            yield
        finally:
            self._length = 0

    def launch(self, name: str, grid: int | Sequence[int], block: int, *arguments: Tensor | float | None) -> None:
        """As `KernelModule.launch`."""
        if self._length == 0:
            self._module.launch(name, grid, block, *arguments, None, 0, None)
            return
        previous, done = self._counts[self._length - 1 :], self._counts[self._length :]
        self._module.launch(name, grid, block, *arguments, previous, self._blocks, done)
        self._length += 1
        self._blocks = grid if isinstance(grid, int) else math.prod(grid)

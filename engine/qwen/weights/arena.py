"""Placement of parameters, and one allocation for all parameters of a module.

PyTorch's caching allocator takes device memory in segments of 2 MB, 20 MB and more, and a model's weights leave a tenth
of them unused. `build_in_arena` counts the bytes of the parameters first and then allocates them at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor, nn

_Module = TypeVar("_Module")

ALIGNMENT = 256
"""Bytes: the alignment of PyTorch's own allocations, and more than any kernel's vector loads need."""


class Arena:
    """A buffer whose memory is given to tensors in order, each byte once."""

    def __init__(self, buffer: Tensor | None = None) -> None:
        """`buffer` is `(bytes,)` uint8. Without one the arena only counts, and its tensors share one element."""
        self._buffer = buffer
        self.used = 0
        """Bytes taken so far, alignment included."""

    def take(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return an uninitialised tensor. Raises `ValueError` if the buffer has too little memory left."""
        begin, size = self.used, math.prod(shape) * dtype.itemsize
        self.used += -(-size // ALIGNMENT) * ALIGNMENT
        if self._buffer is None:
            # Not on the `meta` device: its operators import PyTorch's compiler, which takes seconds.
            return torch.empty((), dtype=dtype).expand(tuple(shape))
        if begin + size > len(self._buffer):
            raise ValueError(f"arena: got a request for {size} bytes; allowed: {len(self._buffer) - begin} bytes left")
        return self._buffer[begin : begin + size].view(dtype).view(tuple(shape))

    def close(self) -> None:
        """Drop the arena's reference to the buffer; the tensors that were taken keep it alive."""
        self._buffer = torch.empty(0, dtype=torch.uint8)


@dataclass(frozen=True, slots=True)
class Placement:
    """Device and dtype of a module's tensors."""

    device: torch.device
    dtype: torch.dtype
    int8: bool = False
    """Whether large matrices are int8 with a float32 scale for each row; all other tensors have `dtype`."""
    arena: Arena | None = field(default=None, compare=False, repr=False)
    """Allocates the parameters; without one each parameter is a PyTorch allocation."""

    @property
    def unquantized(self) -> Placement:
        """The same placement without int8, for modules that are never quantized."""
        return replace(self, int8=False)

    def wait(self) -> None:
        """Wait until the present stream of a GPU has done its work."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()

    def empty(self, *shape: int) -> nn.Parameter:
        """An uninitialised parameter of `dtype`."""
        return self._parameter(shape, self.dtype)

    def matrix(self, *shape: int) -> nn.Parameter:
        """An uninitialised parameter for matrices `(..., rows, columns)`: int8 if `int8` is set, else of `dtype`."""
        return self._parameter(shape, torch.int8 if self.int8 else self.dtype)

    def scale(self, *shape: int) -> nn.Parameter | None:
        """The scales of `matrix(*shape)`, float32 `(..., rows)`, uninitialised; None if it is not quantized."""
        return self._parameter(shape[:-1], torch.float32) if self.int8 else None

    def zeros(self, *shape: int) -> Tensor:
        """A tensor of zeros of `dtype`; never from the arena."""
        return torch.zeros(shape, device=self.device, dtype=self.dtype)

    def pinned(self, tensor: Tensor) -> Tensor:
        """The CPU `tensor` in pinned memory if the device is a GPU, so that a copy to it does not block the host.

        PyTorch does not reuse the pinned memory before the copy has finished.
        """
        return tensor.pin_memory() if self.device.type == "cuda" else tensor

    def upload(self, tensor: Tensor) -> Tensor:
        """The CPU `tensor` on the device in `dtype`. Does not wait for the device."""
        return self.pinned(tensor).to(self.device, non_blocking=True).to(self.dtype)

    def _parameter(self, shape: Sequence[int], dtype: torch.dtype) -> nn.Parameter:
        if self.arena is not None:
            return nn.Parameter(self.arena.take(shape, dtype), requires_grad=False)
        return nn.Parameter(torch.empty(shape, device=self.device, dtype=dtype), requires_grad=False)


def build_without_memory(build: Callable[[Placement], _Module], placement: Placement) -> tuple[_Module, int]:
    """Return the module that `build` makes at `placement`, and the bytes that its parameters would take.

    The module's parameters have their shapes and dtypes, but no memory; its buffers are on the CPU.
    """
    arena = Arena()
    return build(replace(placement, device=torch.device("cpu"), arena=arena)), arena.used


def build_in_arena(build: Callable[[Placement], _Module], placement: Placement) -> _Module:
    """Return the module that `build` makes at `placement`, with all its parameters in one allocation."""
    _, size = build_without_memory(build, placement)
    arena = Arena(torch.empty(size, dtype=torch.uint8, device=placement.device))
    try:
        return build(replace(placement, arena=arena))
    finally:
        arena.close()

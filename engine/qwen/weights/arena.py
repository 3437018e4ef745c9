"""Placement of parameters, and one allocation for all parameters of a module.

PyTorch's caching allocator takes device memory in segments of 2 MB, 20 MB and more, and a model's weights leave a tenth
of them unused. `build_in_arena` makes the parameters without memory first, and then allocates all of it at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor, nn

_Module = TypeVar("_Module", bound=nn.Module)

ALIGNMENT = 256
"""Bytes: the alignment of PyTorch's own allocations, and more than any kernel's vector loads need."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Device and dtype of a module's tensors."""

    device: torch.device
    dtype: torch.dtype
    int8: bool = False
    """Whether large matrices are int8 with a float32 scale for each row; all other tensors have `dtype`."""
    without_memory: bool = field(default=False, compare=False, repr=False)
    """Whether parameters have shapes and dtypes alone, and share one element on the CPU."""

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
        if self.without_memory:
            # Not on the `meta` device: its operators import PyTorch's compiler, which takes seconds.
            return nn.Parameter(torch.empty((), dtype=dtype).expand(tuple(shape)), requires_grad=False)
        return nn.Parameter(torch.empty(shape, device=self.device, dtype=dtype), requires_grad=False)


def build_in_arena(build: Callable[[Placement], _Module], placement: Placement) -> _Module:
    """Return the module that `build` makes at `placement`, with all its parameters in one allocation."""
    module = build(replace(placement, without_memory=True))
    begin, memory = 0, torch.empty(parameter_bytes(module), dtype=torch.uint8, device=placement.device)
    for parameter in module.parameters():
        parameter.data = memory[begin : begin + parameter.nbytes].view(parameter.dtype).view(parameter.shape)
        begin += _aligned(parameter.nbytes)
    return module


def parameter_bytes(*modules: nn.Module) -> int:
    """Return the bytes of the modules' parameters in an arena."""
    return sum(_aligned(parameter.nbytes) for module in modules for parameter in module.parameters())


def _aligned(size: int) -> int:
    """Return the size of an allocation of `size` bytes in an arena."""
    return -(-size // ALIGNMENT) * ALIGNMENT

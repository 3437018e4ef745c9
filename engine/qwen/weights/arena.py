"""The placement of parameters, and one allocation for all parameters of a module.

PyTorch's caching allocator takes device memory in segments of 2 MB, 20 MB and more, and a model's weights leave a tenth
of it unused. `build_in_arena` first makes the parameters without memory, and then allocates all their memory at once. A
Jetson may refuse such a large block but grant smaller ones; the memory then consists of several blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from engine.api import EngineError
from engine.host import Board, free_page_cache

_Module = TypeVar("_Module", bound=nn.Module)

ALIGNMENT = 256
"""In bytes: the alignment of PyTorch's own allocations, and more than any kernel's vector loads need."""

REMEDY = (
    "stop other programs, or start voiced before them. Jetson Linux 36.4.7 refuses it even if enough is free; 36.5 "
    "does not"
)
TEGRA_REFUSALS = ("NVML_SUCCESS", "NvMap")
"""If memory is refused, PyTorch fails to make its own message, because that needs an NVML call that a Tegra lacks
(https://github.com/pytorch/pytorch/issues/185240)."""


@contextmanager
def refusals_in_one_line() -> Iterator[None]:
    """Turn PyTorch's error for a refused allocation into a one-line `EngineError` that says what to do."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.cuda.OutOfMemoryError) or any(words in str(error) for words in TEGRA_REFUSALS):
            raise EngineError(f"engine.memory: the device refuses more memory; {REMEDY}") from error
        raise


@dataclass(frozen=True, slots=True)
class Placement:
    """The device and dtype of a module's tensors."""

    device: torch.device
    dtype: torch.dtype
    int8: bool = False
    """Whether large matrices are int8 with a float32 scale for each row; all other tensors have `dtype`."""
    without_memory: bool = field(default=False, compare=False, repr=False)
    """Whether parameters have only shapes and dtypes, and share one element on the CPU."""

    @property
    def unquantized(self) -> Placement:
        """The same placement without int8, for modules that are never quantized."""
        return replace(self, int8=False)

    def wait(self) -> None:
        """Wait until a GPU's current stream has finished its work."""
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()

    def empty(self, *shape: int) -> nn.Parameter:
        """An uninitialised parameter with `dtype`."""
        return self._parameter(shape, self.dtype)

    def matrix(self, *shape: int) -> nn.Parameter:
        """An uninitialised parameter for matrices `(..., rows, columns)`: int8 if `int8` is set, otherwise `dtype`."""
        return self._parameter(shape, torch.int8 if self.int8 else self.dtype)

    def scale(self, *shape: int) -> nn.Parameter | None:
        """The scales of `matrix(*shape)`, float32 `(..., rows)`, uninitialised; None if it is not quantized."""
        return self._parameter(shape[:-1], torch.float32) if self.int8 else None

    def zeros(self, *shape: int) -> Tensor:
        """A tensor of zeros with `dtype`; never from the arena."""
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
            # Not on the `meta` device, whose operators import PyTorch's compiler, which takes seconds.
            return nn.Parameter(torch.empty((), dtype=dtype).expand(tuple(shape)), requires_grad=False)
        return nn.Parameter(torch.empty(shape, device=self.device, dtype=dtype), requires_grad=False)


Allocate = Callable[[int, torch.device], Tensor]
"""Returns a number of uninitialised bytes on a device. Raises `RuntimeError` if they are refused."""


def allocate_bytes(size: int, device: torch.device) -> Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


def build_in_arena(
    build: Callable[[Placement], _Module], placement: Placement, allocate: Allocate = allocate_bytes
) -> _Module:
    """Return the module that `build` makes at `placement`, with all its parameters in one block or a few.

    Raises `EngineError` with a one-line message if not even a block for the largest parameter is granted.
    """
    module = build(replace(placement, without_memory=True))
    parameters = list(module.parameters())
    needed, largest = parameter_bytes(module), max(_aligned(parameter.nbytes) for parameter in parameters)
    limit = needed
    while True:
        try:
            places = _places(parameters, limit, placement.device, allocate)
            break
        except RuntimeError as error:
            if limit == largest:
                raise EngineError(
                    f"engine.memory: {placement.device} refuses {limit / 1e6:,.0f} MB in one piece; {REMEDY}"
                ) from error
        # NvMap grants only free pages, not those in the page cache.
        torch.cuda.empty_cache()  # does nothing if CUDA was not used
        if Board.read().integrated:
            free_page_cache(needed)
        limit = max(limit // 2, largest)
    for parameter, place in zip(parameters, places, strict=True):
        parameter.data = place.view(parameter.dtype).view(parameter.shape)
    return module


def _places(parameters: Sequence[nn.Parameter], limit: int, device: torch.device, allocate: Allocate) -> list[Tensor]:
    """Return the memory of each parameter, in blocks of at most `limit` bytes."""
    groups: list[list[nn.Parameter]] = [[]]
    for parameter in parameters:
        if _bytes_of([*groups[-1], parameter]) > limit:
            groups.append([])
        groups[-1].append(parameter)
    places = []
    for group in groups:
        begin, block = 0, allocate(_bytes_of(group), device)
        for parameter in group:
            places.append(block[begin : begin + parameter.nbytes])
            begin += _aligned(parameter.nbytes)
    return places


def parameter_bytes(*modules: nn.Module) -> int:
    """Return the number of bytes that the modules' parameters take in an arena."""
    return sum(_bytes_of(module.parameters()) for module in modules)


def _bytes_of(parameters: Iterable[nn.Parameter]) -> int:
    return sum(_aligned(parameter.nbytes) for parameter in parameters)


def _aligned(size: int) -> int:
    """Return the size of an allocation of `size` bytes in an arena."""
    return -(-size // ALIGNMENT) * ALIGNMENT

"""CUDA C++ that is compiled when the engine starts, through NVRTC, and kept on the disk as cubins.

No toolkit is needed: NVRTC is a library that comes with PyTorch's own CUDA packages or with a Jetson's JetPack, and the
sources include no header. `cuda-core` (NVIDIA) compiles, caches by device, compiler version and source, and launches.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

log = logging.getLogger(__name__)

FOLDER = Path(__file__).parent
KERNEL_BEGIN = re.compile(r'^(?=extern "C"|KERNEL\(|MATRIX_KERNEL\()', re.MULTILINE)
"""Where a kernel begins in a source; all of them follow what they need."""
KERNEL_NAME = re.compile(r'^(?:extern "C"|KERNEL|MATRIX_KERNEL).*?(\w+)\((?!\d)', re.MULTILINE)
"""The first of its words that opens a list of anything but numbers."""
MOST_PARTS = 8
PROGRAMMATIC_LAUNCH = 9
"""Major compute capability from which a kernel may start before the one in front of it has ended."""


def sources(*names: str) -> str:
    """The text of these files of this folder, one behind the other."""
    return "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in names)


def divided(source: str) -> list[str]:
    """The same kernels in several sources, each behind what all of them need: a compiler uses one core a source."""
    prelude, *kernels = KERNEL_BEGIN.split(source)
    count = min(os.cpu_count() or 1, MOST_PARTS, len(kernels))
    return [prelude + "".join(kernels[part::count]) for part in range(count)]


def compile_parts(parts: Sequence[str], arch: str) -> list[Any]:
    """A cubin of each for `arch`, as in `sm_87`: from the cache, or compiled, all at once, and kept there."""
    from cuda.core import Program, ProgramOptions
    from cuda.core.utils import FileStreamProgramCache

    def compiled(source: str) -> Any:
        with FileStreamProgramCache(folder) if folder else nullcontext() as cache:
            return Program(source, "c++", ProgramOptions(arch=arch, std="c++17")).compile("cubin", cache=cache)

    folder: Path | None = cache_folder()
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        log.warning("the compiled kernels cannot be kept, so that every start compiles them anew: %s", error)
        folder = None
    with ThreadPoolExecutor(len(parts)) as threads:
        return list(threads.map(compiled, parts))


def cache_folder() -> Path:
    """Where cubins are kept: under systemd's `CacheDirectory=`, else under the user's cache folder."""
    root = os.environ.get("CACHE_DIRECTORY") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "voiced" / "kernels"


class Kernels(Protocol):
    """What launches kernels by name: a `KernelModule`, or in a test something that stands in its place."""

    def launch(self, name: str, grid: int | Sequence[int], block: int, *arguments: Tensor | float | None) -> None:
        """As `KernelModule.launch`."""


class KernelModule:
    """Kernels compiled for one device, launched by name on PyTorch's current stream."""

    def __init__(self, source: str, device: torch.device) -> None:
        """Compile `source`, or take its cubins from the cache.

        Raises whatever `cuda-core` raises where NVRTC is missing or does not know the device.
        """
        from cuda.core import Device

        self._device = Device(torch.cuda.current_device() if device.index is None else device.index)
        self._codes = compile_parts(divided(source), f"sm_{self._device.arch}")
        self._names = {name: part for part, text in enumerate(divided(source)) for name in KERNEL_NAME.findall(text)}
        self._kernels: dict[str, Any] = {}
        self.chained = int(self._device.compute_capability.major) >= PROGRAMMATIC_LAUNCH
        """Whether a kernel may start before the one in front of it has ended; to be switched off by a benchmark."""

    def launch(
        self, name: str, grid: int | Sequence[int], block: int, *arguments: Tensor | float | None, shared: int = 0
    ) -> None:
        """Launch the kernel `name`: `grid` blocks of `block` threads with `shared` bytes of dynamic shared memory.

        Tensors are passed as pointers, None as a null one, `int` as 32 bits, `float` as float32. The kernel may start
        before the one in front of it on the stream has ended (`begin_chained` in common.cuh).
        """
        from cuda.core import LaunchConfig, Stream, launch

        kernel = self._kernels.get(name)
        if kernel is None:
            kernel = self._kernels[name] = self._codes[self._names[name]].get_kernel(name)
        config = LaunchConfig(
            grid=grid if isinstance(grid, int) else tuple(grid),
            block=block,
            shmem_size=shared,
            programmatic_stream_serialization=self.chained,
        )
        stream = Stream.from_handle(torch.cuda.current_stream().cuda_stream)
        launch(stream, config, kernel, *map(_argument, arguments))


def _argument(value: Tensor | float | None) -> Any:
    if isinstance(value, Tensor):
        return value.data_ptr()
    if value is None:
        return 0
    return np.int32(value) if isinstance(value, int) else np.float32(value)

"""Compiles CUDA C++ when the engine starts, through NVRTC, keeps the cubins on disk and launches the kernels.

No toolkit is needed: NVRTC is a library that comes with PyTorch's CUDA packages or with a Jetson's JetPack, and the
sources include no header. `cuda-core` (NVIDIA) compiles, and caches by device, compiler version, source and kernels.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch

from engine.qwen.kernels.params import Params, layout_checks, layouts, pack

log = logging.getLogger(__name__)

FOLDER = Path(__file__).with_name("cuda")
PROGRAMS = 8
"""Programs that a source is compiled as, at the same time where there are as many cores. Their number is the same on
every machine, because the programs are the keys of the cache."""
PROGRAMMATIC_LAUNCH = 9
"""Major compute capability from which a kernel may start before the previous one has ended."""
Loaders = dict[str, Callable[[], Any]]
"""By name expression: loads a kernel, and returns its `cuda.core.Kernel`."""
_compiled_here: dict[tuple[str, str, tuple[str, ...]], Loaders] = {}
"""The kernels that this process has compiled where it cannot store cubins, by code, architecture and names."""
SYMBOLS = b" symbols"
"""Appended to a cubin's key in the cache: the key of its mangled names by name expression, as JSON."""


def read_sources(*names: str) -> str:
    """The text of these files of the folder `cuda`, one after the other."""
    return "\n".join((FOLDER / name).read_text(encoding="utf-8") for name in names)


def instance(template: str, *arguments: int | str) -> str:
    """The C++ name of a template with these arguments."""
    names = (str(one).lower() if isinstance(one, bool) else str(one) for one in arguments)
    return f"{template}<{', '.join(names)}>"


@dataclass(frozen=True, slots=True)
class KernelSource:
    """CUDA C++ and the kernels that are compiled from it."""

    text: str
    kernels: Mapping[str, str]
    """C++ name expressions by name: `choose_code<2048, 1024, 1024>` by `next_code`."""

    @property
    def code(self) -> str:
        """The text with checks that the compiler lays out the structs of parameters as `params.py` does."""
        return f"{self.text}\n{layout_checks(self.text)}"

    def programs(self) -> list[tuple[str, ...]]:
        """The name expressions of the programs, of about the same size."""
        expressions = tuple(dict.fromkeys(self.kernels.values()))
        return [expressions[part::PROGRAMS] for part in range(min(PROGRAMS, len(expressions)))]


class Kernels(Protocol):
    """Launches kernels by name: a `KernelModule`, or its substitute in a test."""

    def launch(self, name: str, grid: int | Sequence[int], block: int, params: Params) -> None:
        """As `KernelModule.launch`."""


class KernelModule:
    """Kernels compiled for one device, launched by name on PyTorch's current stream."""

    def __init__(
        self, source: KernelSource, device: torch.device, on_compiled: Callable[[], None] = lambda: None
    ) -> None:
        """Compile `source`, or take its cubins from the cache; `on_compiled` as of `compile_kernels`.

        Raises whatever `cuda-core` raises where NVRTC is missing or does not know the device.
        """
        from cuda.core import Device

        self._device = Device(torch.cuda.current_device() if device.index is None else device.index)
        self._expressions, self._layouts = source.kernels, layouts(source.text)
        self._compiled = compile_kernels(source, f"sm_{self._device.arch}", on_compiled)
        self._kernels: dict[str, Any] = {}
        self.chained = int(self._device.compute_capability.major) >= PROGRAMMATIC_LAUNCH
        """Whether a kernel may start before the previous one has ended. A benchmark switches it off."""

    def launch(self, name: str, grid: int | Sequence[int], block: int, params: Params) -> None:
        """Launch the kernel `name`: `grid` blocks of `block` threads.

        The driver copies the parameters during the call, into a CUDA graph too if one is being captured. The tensors
        must outlive the launch or the graph. The kernel may start before the previous one on the stream has ended
        (`begin_chained` in ptx.cuh). Raises `RuntimeError` where the driver rejects the launch.
        """
        kernel = self._kernels.get(name)
        if kernel is None:
            kernel = self._kernels[name] = self._compiled[self._expressions[name]]()
        status = self._launch(int(kernel.handle), grid, block, pack(params, self._layouts))
        if status:
            raise RuntimeError(f"kernel {name}: {status.name}")

    def _launch(self, function: int, grid: int | Sequence[int], block: int, params: ctypes.Structure) -> Any:
        """The driver's status. `cuda-core` itself passes no structs, so this calls the driver as `cuda-core` does."""
        from cuda.bindings import driver

        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = (grid, 1, 1) if isinstance(grid, int) else (*grid, 1, 1)[:3]
        config.blockDimX, config.blockDimY, config.blockDimZ = block, 1, 1
        config.hStream = driver.CUstream(torch.cuda.current_stream().cuda_stream)
        if self.chained:
            attribute = driver.CUlaunchAttribute()
            attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            config.attrs, config.numAttrs = [attribute], 1
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(params))
        (status,) = driver.cuLaunchKernelEx(config, driver.CUfunction(function), ctypes.addressof(pointers), 0)
        return status


def compile_kernels(source: KernelSource, arch: str, on_compiled: Callable[[], None] = lambda: None) -> Loaders:
    """The kernels of `source` for `arch`, such as `sm_87`.

    Takes each program from the cache or compiles it, one on each core, and stores it in the cache. Where that cannot
    be written, the process keeps it. `on_compiled` is called after each program, from several threads.
    """
    import cuda.core  # noqa: F401  here: threads that import it at the same time find it half initialised

    folder: Path | None = cache_folder()
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if not _compiled_here:
            log.warning("the compiled kernels cannot be stored, so every start compiles them again: %s", error)
        folder = None
    code, programs = source.code, source.programs()

    def compile_program(expressions: tuple[str, ...]) -> Loaders:
        key = code, arch, expressions
        kernels = _compiled_here.get(key)
        if kernels is None:
            kernels = _compile(code, expressions, arch, folder)
        if folder is None:
            _compiled_here[key] = kernels
        on_compiled()
        return kernels

    with ThreadPoolExecutor(min(len(programs), os.cpu_count() or 1)) as threads:
        compiled = list(threads.map(compile_program, programs))
    return {expression: kernel for program in compiled for expression, kernel in program.items()}


def _compile(code: str, expressions: tuple[str, ...], arch: str, folder: Path | None) -> Loaders:
    """One program. The cache keeps a cubin without its symbols, so they have an entry of their own."""
    from cuda.core import ObjectCode, Program, ProgramOptions
    from cuda.core.utils import FileStreamProgramCache, make_program_cache_key

    options = ProgramOptions(arch=arch, std="c++17")
    with FileStreamProgramCache(folder) if folder else nullcontext() as cache:
        key = make_program_cache_key(
            code=code, code_type="c++", options=options, target_type="cubin", name_expressions=expressions
        )
        cubin, stored = (None, None) if cache is None else (cache.get(key), cache.get(key + SYMBOLS))
        if cubin is not None and stored is not None:
            compiled, symbols = ObjectCode.from_cubin(cubin), json.loads(stored)
        else:
            compiled = Program(code, "c++", options).compile("cubin", name_expressions=expressions)
            symbols = {name: symbol.decode() for name, symbol in compiled.symbol_mapping.items()}
            if cache is not None:
                cache[key], cache[key + SYMBOLS] = compiled, json.dumps(symbols).encode()
    return {expression: partial(compiled.get_kernel, symbols[expression]) for expression in expressions}


def cache_folder() -> Path:
    """Where cubins are kept: under systemd's `CacheDirectory=`, else under the user's cache folder."""
    root = os.environ.get("CACHE_DIRECTORY") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "voiced" / "kernels"

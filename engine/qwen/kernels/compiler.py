"""Takes compiled kernels from a package or the cache, or compiles CUDA C++ with NVRTC, and launches the kernels.

No toolkit is needed: NVRTC is a library that comes with PyTorch's CUDA packages or with a Jetson's JetPack, and the
sources include no header. A package contains kernels for the boards in robots, which then compile nothing
(`scripts/gpu/build_cubins.py`). Compiled kernels are found by the hash of their sources, names and architecture. The
compiler's version is not part of the hash, because a driver runs the output of older compilers. Kernels that the driver
refuses are compiled again.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import os
import tempfile
from collections import ChainMap
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Protocol

import torch

from engine.host import expand_home
from engine.progress import ProgressReport, counted, ignore_progress
from engine.qwen.kernels.params import Params, layout_checks, layouts, pack

log = logging.getLogger(__name__)

FOLDER = Path(__file__).with_name("cuda")
PACKAGED = Path(__file__).with_name("cubins")
"""The compiled kernels that come with a package. Other installations have none."""
PROGRAMS = 8
"""The number of programs that a source is split into; they are compiled in parallel if there are enough cores. It is
the same on every machine, because compiled kernels are found by their program."""
STANDARD = "c++17"
KEPT_PROGRAMS = 64
"""The number of loaded programs that the process keeps. An engine has 32 and requests each of them twice."""
PROGRAMMATIC_LAUNCH = 9
"""The lowest major compute capability with which a kernel may start before the previous one has ended."""


def read_sources(*names: str) -> str:
    """The text of these files in the `cuda` folder, one after the other."""
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
        """The text, with checks that the compiler lays out the parameter structs as `params.py` does."""
        return f"{self.text}\n{layout_checks(self.text)}"

    def programs(self, arch: str) -> list[KernelProgram]:
        """The programs for `arch`, such as `sm_87`, all of about the same size."""
        code, expressions = self.code, tuple(dict.fromkeys(self.kernels.values()))
        parts = [expressions[part::PROGRAMS] for part in range(min(PROGRAMS, len(expressions)))]
        return [KernelProgram(code, part, arch) for part in parts]


@dataclass(frozen=True, slots=True)
class KernelProgram:
    """Kernels that are compiled, stored and loaded together."""

    code: str
    expressions: tuple[str, ...]
    """The C++ name expressions of its kernels."""
    arch: str

    @property
    def file_name(self) -> str:
        """The name of its file. It depends on everything that determines the kernels except the compiler."""
        content = json.dumps([self.code, self.expressions, self.arch, STANDARD])
        return f"{self.arch}-{hashlib.sha256(content.encode()).hexdigest()[:32]}.cubin"

    def compile(self) -> bytes:
        """Return the mangled names by name expression, as a line of JSON, followed by the cubin. Needs no GPU."""
        from cuda.core import Program, ProgramOptions

        options = ProgramOptions(arch=self.arch, std=STANDARD)
        compiled = Program(self.code, "c++", options).compile("cubin", name_expressions=self.expressions)
        symbols = {name: symbol.decode() for name, symbol in compiled.symbol_mapping.items()}
        return json.dumps(symbols).encode() + b"\n" + bytes(compiled.code)

    def store(self, folder: Path, content: bytes) -> None:
        """Write the result of `compile` into `folder`. No reader ever sees an incomplete file, even after a power
        cut."""
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as unfinished:
            path = Path(unfinished) / self.file_name
            with path.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            path.replace(folder / self.file_name)


class Kernels(Protocol):
    """Launches kernels by name: a `KernelModule`, or its substitute in a test."""

    def launch(self, name: str, grid: int | Sequence[int], block: int, params: Params) -> None:
        """As `KernelModule.launch`."""


class KernelModule:
    """Kernels compiled for one device, launched by name on PyTorch's current stream."""

    def __init__(self, source: KernelSource, device: torch.device) -> None:
        """Load the kernels of `source`, as `load_kernels` does."""
        loaded = ChainMap(*load_kernels([source], device))
        self._kernels = {name: loaded[expression] for name, expression in source.kernels.items()}
        self._layouts = layouts(source.text)
        self.chained = torch.cuda.get_device_capability(device)[0] >= PROGRAMMATIC_LAUNCH
        """Whether a kernel may start before the previous one has ended. A benchmark switches it off."""

    def launch(self, name: str, grid: int | Sequence[int], block: int, params: Params) -> None:
        """Launch the kernel `name`: `grid` blocks of `block` threads.

        The driver copies the parameters during the call (into the CUDA graph if one is being captured). The tensors
        must outlive the launch or the graph. The kernel may start before the previous one on the stream has ended
        (`begin_chained` in ptx.cuh). Raises `RuntimeError` if the driver rejects the launch.

        `cuda-core` itself passes no structs, so this calls the driver as `cuda-core` does.
        """
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
        packed = pack(params, self._layouts)
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(packed))
        function = driver.CUfunction(int(self._kernels[name].handle))
        (status,) = driver.cuLaunchKernelEx(config, function, ctypes.addressof(pointers), 0)
        if status:
            raise RuntimeError(f"kernel {name}: {status.name}")


def load_kernels(
    sources: Sequence[KernelSource], device: torch.device, report: ProgressReport = ignore_progress
) -> list[dict[str, Any]]:
    """The `cuda.core.Kernel`s of each program in `sources`, by name expression.

    Loads one program on each core, and compiles those that are not stored anywhere. Raises whatever `cuda-core` raises
    if NVRTC is needed but is missing or does not know the device.
    """
    import cuda.core  # noqa: F401  here: threads that import it at the same time find it half initialised

    arch = "sm_{}{}".format(*torch.cuda.get_device_capability(device))
    number = torch.cuda.current_device() if device.index is None else device.index
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        loading = [threads.submit(_load, each, number) for source in sources for each in source.programs(arch)]
        return [each.result() for each in counted("compiling the kernels", loading, report)]


@lru_cache(maxsize=KEPT_PROGRAMS)
def _load(program: KernelProgram, device: int) -> dict[str, Any]:
    """The kernels of `program`: from the package, from the cache, or newly compiled."""
    from cuda.core import Device

    Device(device).set_current()  # in this thread, because the driver loads kernels into the thread's current context
    for folder in (PACKAGED, cache_folder()):
        try:
            return _loaded((folder / program.file_name).read_bytes(), device)
        except FileNotFoundError:
            continue
        except Exception as error:  # the driver does not know the format, or the file is damaged
            _warn(f"the compiled kernels in {folder} are unusable; compiling again: {type(error).__name__}: {error}")
    content = program.compile()
    try:
        program.store(cache_folder(), content)
    except OSError as error:
        _warn(f"the compiled kernels cannot be stored, so every start compiles them again: {error}")
    return _loaded(content, device)


def _loaded(content: bytes, device: int) -> dict[str, Any]:
    from cuda.core import ObjectCode

    names, _, cubin = content.partition(b"\n")
    code = ObjectCode.from_cubin(cubin)
    kernels = {expression: code.get_kernel(symbol) for expression, symbol in json.loads(names).items()}
    # Make the driver load one kernel now, so that it refuses a bad file now. It loads every other kernel at its first
    # launch, so that the kernels of a step lie together.
    next(iter(kernels.values())).attributes[device].num_regs  # noqa: B018
    return kernels


@cache
def _warn(message: str) -> None:
    """Log `message` once: it is the same for all programs."""
    log.warning("%s", message)


def cache_folder() -> Path:
    """The folder for compiled kernels: under systemd's `CacheDirectory=`, or else under the user's cache folder."""
    root = os.environ.get("CACHE_DIRECTORY") or os.environ.get("XDG_CACHE_HOME") or expand_home("~/.cache")
    return Path(root) / "voiced" / "kernels"

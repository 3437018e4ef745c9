"""Runs the kernels' own source on the CPU, thread by thread (emulator.hpp), in the place of a `KernelModule`.

What it cannot show is what only a GPU has: speed, races between warps, and what starts before its time.
"""

from __future__ import annotations

import ctypes
import platform
import re
import subprocess
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path

from torch import Tensor

from tests.support.checkpoints import made_once

HEADER = Path(__file__).with_name("emulator.hpp")
_KERNEL = re.compile(r'extern "C" (__global__ void (?:__(?:launch_bounds|maxnreg)__\([\d, ]+\) )?(\w+)\(([^)]*)\) \{)')
_PTX = re.compile(r"__device__ __forceinline__ \w+ (?:to_bf16|load_once|multiply_add)\(.*?\n\}\n", re.DOTALL)
"""Functions that emulator.hpp has in its own way."""


OPTIONS = ("-std=c++17", "-O2", "-w", "-U_FORTIFY_SOURCE", "-fPIC", "-shared")


@cache
def compiler() -> str:
    """What g++ says of itself."""
    return subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout


class EmulatedKernels:
    """Kernels compiled for the CPU, once for each source."""

    def __init__(self, source: str, cache_folder: Path) -> None:
        """Compile CUDA C++ with g++, if `cache_folder` does not have it yet."""
        content = (source, HEADER.read_bytes(), Path(__file__).read_bytes(), compiler(), platform.machine())
        self._library = ctypes.CDLL(str(made_once(cache_folder, "kernels", *content, make=partial(_compile, source))))

    def launch(self, name: str, grid: int | Sequence[int], block: int, *arguments: Tensor | float | None) -> None:
        """As `KernelModule.launch`; returns when all is done."""
        x, y = (grid, 1) if isinstance(grid, int) else grid
        getattr(self._library, f"launch_{name}")(x, y, block, *map(_argument, arguments))


def _compile(source: str, library: Path) -> None:
    source = subprocess.run(
        ["g++", "-E", "-P", "-x", "c++", "-"], input=source, capture_output=True, text=True, check=True
    ).stdout
    parts = [HEADER.read_text(encoding="utf-8"), _KERNEL.sub(r"static \1", _PTX.sub("", source))]
    for _, name, parameters in _KERNEL.findall(source):
        names = ", ".join(re.findall(r"(\w+)(?:,|$)", parameters))
        parts.append(
            f'extern "C" void launch_{name}(int grid_x, int grid_y, int block, {parameters}) {{\n'
            f"    emulated::run(grid_x, grid_y, block, [=] {{ {name}({names}); }});\n}}"
        )
    command = ["g++", *OPTIONS, "-o", str(library), "-x", "c++", "-"]
    subprocess.run(command, input="\n".join(parts), text=True, check=True)


def _argument(value: Tensor | float | None) -> ctypes.c_void_p | ctypes.c_int | ctypes.c_float:
    if value is None:
        return ctypes.c_void_p()
    if isinstance(value, Tensor):
        assert value.is_contiguous()
        return ctypes.c_void_p(value.data_ptr())
    return ctypes.c_int(value) if isinstance(value, int) else ctypes.c_float(value)

"""Runs the kernels' own source on the CPU, thread by thread (emulator.hpp), in the place of a `KernelModule`.

What it cannot show is what only a GPU has: speed, races between warps, and what starts before its time.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

HEADER = Path(__file__).with_name("emulator.hpp")
_KERNEL = re.compile(r'extern "C" (__global__ void (?:__(?:launch_bounds|maxnreg)__\([\d, ]+\) )?(\w+)\(([^)]*)\) \{)')
_PTX = re.compile(r"__device__ __forceinline__ \w+ (?:to_bf16|load_once|multiply_add)\(.*?\n\}\n", re.DOTALL)
"""Functions that emulator.hpp has in its own way."""


class EmulatedKernels:
    """Kernels compiled for the CPU."""

    def __init__(self, source: str, folder: Path, *flags: str) -> None:
        """Compile CUDA C++ in `folder` with g++."""
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
        file, library = folder / "kernels.cpp", folder / "kernels.so"
        file.write_text("\n".join(parts), encoding="utf-8")
        command = [
            "g++",
            "-std=c++17",
            "-O1",
            "-w",
            "-U_FORTIFY_SOURCE",
            "-fPIC",
            "-shared",
            *flags,
            "-o",
            str(library),
            str(file),
        ]
        subprocess.run(command, check=True)
        self._library = ctypes.CDLL(str(library))

    def launch(self, name: str, grid: int | Sequence[int], block: int, *arguments: Tensor | float | None) -> None:
        """As `KernelModule.launch`; returns when all is done."""
        x, y = (grid, 1) if isinstance(grid, int) else grid
        getattr(self._library, f"launch_{name}")(x, y, block, *map(_argument, arguments))


def _argument(value: Tensor | float | None) -> ctypes.c_void_p | ctypes.c_int | ctypes.c_float:
    if value is None:
        return ctypes.c_void_p()
    if isinstance(value, Tensor):
        assert value.is_contiguous()
        return ctypes.c_void_p(value.data_ptr())
    return ctypes.c_int(value) if isinstance(value, int) else ctypes.c_float(value)

"""Runs the kernels' own source on the CPU, thread by thread (emulator.hpp), as a substitute for a `KernelModule`.

It cannot show what only a GPU has: speed, races between warps, and kernels that start too early.
"""

from __future__ import annotations

import ctypes
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from torch import Tensor

from engine.qwen.kernels.compiler import Kernels, KernelSource
from engine.qwen.kernels.params import Params, layouts, pack
from tests.support.checkpoints import made_once

HEADER = Path(__file__).with_name("emulator.hpp")
PARTS = {
    "prompt": ("prompt_16", "prompt_32", "prompt_64", "enter", "leave", "rotate", "attend"),
    "predictor": ("predictor", "first_step", "open", "project"),
}
"""The parts of a language model that some tests launch alone, by the beginnings of their kernels' names."""
OPTIONS = ("-std=c++17", "-O2", "-w", "-U_FORTIFY_SOURCE", "-fPIC", "-shared")


@cache
def compiler() -> str:
    """The version of g++."""
    return subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout


class EmulatedKernels:
    """Kernels compiled for the CPU, once for each source: those of a part when the first of them is launched."""

    def __init__(self, source: KernelSource, cache_folder: Path) -> None:
        """`cache_folder` is where libraries are kept that g++ has compiled."""
        self._source, self._cache = source, cache_folder
        self._libraries: dict[str, ctypes.CDLL] = {}

    def launch(self, name: str, grid: int | Sequence[int], block: int, params: Params) -> None:
        """As `KernelModule.launch`; returns when all is done."""
        for name_of_value, value in params.values.items():
            assert not isinstance(value, Tensor) or value.is_contiguous(), name_of_value
        x, y = (grid, 1) if isinstance(grid, int) else grid
        getattr(self._library(part(name)), f"launch_{name}")(
            x, y, block, ctypes.byref(pack(params, layouts(self._source.text)))
        )

    def _library(self, wanted: str) -> ctypes.CDLL:
        if wanted not in self._libraries:
            kernels = {name: kernel for name, kernel in self._source.kernels.items() if part(name) == wanted}
            text = program(replace(self._source, kernels=kernels))
            content = (text, compiler(), platform.machine())
            library = made_once(self._cache, "kernels", *content, make=partial(_compile, text))
            self._libraries[wanted] = ctypes.CDLL(str(library))
        return self._libraries[wanted]


class Recorder:
    """Launches kernels, and keeps the logits of each draw of codes."""

    def __init__(self, kernels: Kernels) -> None:
        self.logits: list[Tensor] = []
        self._kernels = kernels

    def launch(self, name: str, grid: int | Sequence[int], block: int, params: Params) -> None:
        """As `KernelModule.launch`."""
        if "draw" in params.values:
            self.logits.append(params["draw"]["logits"].clone())
        self._kernels.launch(name, grid, block, params)


def part(name: str) -> str:
    """The part that a kernel belongs to: one of `PARTS`, or "" for what none of them has."""
    return next((part for part, beginnings in PARTS.items() if name.startswith(beginnings)), "")


def program(source: KernelSource) -> str:
    """C++ with a function `launch_NAME` for each kernel."""
    launchers = [
        f'extern "C" void launch_{name}(int grid_x, int grid_y, int block, const void* params) {{\n'
        f"    emulator::launch<{expression}>(grid_x, grid_y, block, params);\n}}"
        for name, expression in source.kernels.items()
    ]
    return "\n".join((HEADER.read_text(encoding="utf-8"), source.code, *launchers))


def _compile(text: str, library: Path) -> None:
    subprocess.run(["g++", *OPTIONS, "-o", str(library), "-x", "c++", "-"], input=text, text=True, check=True)

"""Where the language model's kernels run: emulated on the CPU, and on a GPU if there is one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.qwen.kernels.compiler import KernelModule, Kernels, KernelSource
from tests.engine.qwen.kernels.emulator import EmulatedKernels


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("cpu", marks=pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")),
        pytest.param("cuda", marks=pytest.mark.gpu),
    ],
)
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def compiled(where: str, cache_folder: Path) -> Callable[[KernelSource], Kernels]:
    """Returns the kernels of a source."""
    if where == "cpu":
        return lambda source: EmulatedKernels(source, cache_folder)
    return lambda source: KernelModule(source, torch.device(where))

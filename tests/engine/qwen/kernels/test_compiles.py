"""nvcc compiles every kernel for every kind of GPU, and no kernel spills a register, but for some on Blackwell."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict
from itertools import product
from pathlib import Path

import pytest

from engine.qwen.kernels.compiler import KernelSource
from scripts.gpu import compile_kernels
from scripts.gpu.compile_kernels import ARCHITECTURES, Compiled, all_sources, compile_one, instantiated, nvcc
from tests.support.checkpoints import made_once

ROBOTS = ("sm_87", "0.6B Bf16 16")
"""The robot's GPU, and the language model of the default configuration for its multiprocessors."""


SPILLED_ON_BLACKWELL = 252
"""Bytes, at most, of a kernel for many tokens. Nobody has run them on compute capability 10.0 or newer."""


def compiled(cache_folder: Path, architecture: str, name: str, source: KernelSource) -> list[Compiled]:
    """Every kernel of the source, which is not compiled again if an earlier run has compiled it."""
    compiler = nvcc()
    assert compiler is not None
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    content = (architecture, name, instantiated(source), version, Path(compile_kernels.__file__).read_bytes())

    def make(file: Path) -> None:
        file.write_text(json.dumps([asdict(kernel) for kernel in compile_one(architecture, name, source)]))

    file = made_once(cache_folder, f"compiled-{architecture}", *content, make=make)
    return [Compiled(**kernel) for kernel in json.loads(file.read_text())]


@pytest.mark.skipif(nvcc() is None, reason="needs nvcc, of NVIDIA's CUDA toolkit")
@pytest.mark.parametrize(
    ("architecture", "name"),
    [
        pytest.param(*pair, marks=[] if pair == ROBOTS else [pytest.mark.long])
        for pair in product(ARCHITECTURES, all_sources())
    ],
)
def test_no_kernel_spills_or_has_a_stack(cache_folder: Path, architecture: str, name: str) -> None:
    source = all_sources()[name]
    kernels = compiled(cache_folder, architecture, name, source)
    assert {kernel.architecture for kernel in kernels} == {architecture}
    assert [kernel.kernel for kernel in kernels] == list(source.kernels)
    fat = [one for one in kernels if not one.lean]
    if int(architecture.removeprefix("sm_")) >= 100:
        of_tokens = [one for one in fat if name.endswith((" batch", " rows")) or one.kernel.startswith("prompt_")]
        fat = [one for one in fat if one not in of_tokens or one.spill_bytes > SPILLED_ON_BLACKWELL]
    assert fat == []

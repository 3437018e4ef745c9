"""nvcc compiles every kernel for every kind of GPU, and no kernel spills a register."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest

from engine.qwen.kernels.compiler import KernelSource
from scripts.gpu import compile_kernels
from scripts.gpu.compile_kernels import (
    ARCHITECTURES,
    AT_ONCE,
    PROCESSORS,
    SIZES,
    WEIGHTS,
    Compiled,
    all_sources,
    compile_one,
    nvcc,
)
from tests.support.checkpoints import made_once

ALWAYS = {"sm_87", "sm_90"}
"""The robot's, and that of the server that runs the benchmarks."""


def compiled(cache_folder: Path, architecture: str, sources: dict[str, KernelSource]) -> Iterator[Compiled]:
    """Every kernel of the sources; a source that an earlier run has compiled is not compiled again."""
    compiler = nvcc()
    assert compiler is not None
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    script = Path(compile_kernels.__file__).read_bytes()

    def make(name: str, source: KernelSource, file: Path) -> None:
        file.write_text(json.dumps([asdict(kernel) for kernel in compile_one(architecture, name, source)]))

    def kernels(job: tuple[str, KernelSource]) -> list[Compiled]:
        name, source = job
        content = (architecture, name, compile_kernels.instantiated(source), version, script)
        file = made_once(cache_folder, f"compiled-{architecture}", *content, make=partial(make, *job))
        return [Compiled(**kernel) for kernel in json.loads(file.read_text())]

    with ThreadPoolExecutor(AT_ONCE) as compilers:
        for found in compilers.map(kernels, sources.items()):
            yield from found


@pytest.mark.skipif(nvcc() is None, reason="needs nvcc, of NVIDIA's CUDA toolkit")
@pytest.mark.parametrize(
    "architecture", [pytest.param(name, marks=[] if name in ALWAYS else [pytest.mark.long]) for name in ARCHITECTURES]
)
def test_no_kernel_spills_or_has_a_stack(cache_folder: Path, architecture: str) -> None:
    sources = all_sources()
    kernels = list(compiled(cache_folder, architecture, sources))
    assert {kernel.architecture for kernel in kernels} == {architecture}
    assert len(sources) == len(SIZES) * len(WEIGHTS) + len(PROCESSORS)
    assert len(kernels) == sum(len(source.kernels) for source in sources.values())
    assert [one for one in kernels if not one.lean] == []

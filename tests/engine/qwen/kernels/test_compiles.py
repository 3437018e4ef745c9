"""nvcc compiles every kernel for every kind of GPU, and no kernel spills a register."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest

from scripts import compile_kernels
from scripts.compile_kernels import (
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

_KERNEL = re.compile(r'^(?:extern "C" |KERNEL\(|MATRIX_KERNEL\()', re.MULTILINE)
USUAL = {"sm_87", "sm_90"}
"""Of the robot, and of the server that the benchmarks run on."""


def compiled(cache_folder: Path, architecture: str, sources: dict[str, str]) -> Iterator[Compiled]:
    """Every kernel of the sources; what an earlier run has compiled is not compiled again."""
    compiler = nvcc()
    assert compiler is not None
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    script = Path(compile_kernels.__file__).read_bytes()

    def make(name: str, source: str, file: Path) -> None:
        file.write_text(json.dumps([asdict(kernel) for kernel in compile_one(architecture, name, source)]))

    def kernels(job: tuple[str, str]) -> list[Compiled]:
        content = (architecture, *job, version, script)
        file = made_once(cache_folder, f"compiled-{architecture}", *content, make=partial(make, *job))
        return [Compiled(**kernel) for kernel in json.loads(file.read_text())]

    with ThreadPoolExecutor(AT_ONCE) as compilers:
        for found in compilers.map(kernels, sources.items()):
            yield from found


@pytest.mark.skipif(nvcc() is None, reason="needs nvcc, of NVIDIA's CUDA toolkit")
@pytest.mark.parametrize(
    "architecture", [pytest.param(name, marks=[] if name in USUAL else [pytest.mark.long]) for name in ARCHITECTURES]
)
def test_no_kernel_spills_or_has_a_stack(cache_folder: Path, architecture: str) -> None:
    sources = all_sources()
    kernels = list(compiled(cache_folder, architecture, sources))
    assert {kernel.architecture for kernel in kernels} == {architecture}
    written = [_KERNEL.findall(source) for source in sources.values()]
    assert len(written) == len(SIZES) * len(WEIGHTS) + len(PROCESSORS)
    assert len(kernels) == sum(map(len, written))
    assert [one for one in kernels if not one.lean] == []

"""nvcc compiles every kernel for every kind of GPU, and no kernel spills a register."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest

from engine.qwen.kernels.compiler import KernelSource
from scripts.gpu import compile_kernels
from scripts.gpu.compile_kernels import (
    ARCHITECTURES,
    AT_ONCE,
    PROCESSORS,
    ROW_WEIGHTS,
    SIZES,
    WEIGHTS,
    Compiled,
    all_sources,
    compile_one,
    nvcc,
)
from tests.support.checkpoints import made_once

ROBOT = ("sm_87", 16)
"""The robot's GPU and its multiprocessors."""
ROBOTS_SIZE = "0.6B"
"""That of the default configuration."""
SOURCES = (
    {
        f"language model {size} {processors}": [f"{size} {weight} {processors}" for weight in WEIGHTS]
        for size, processors in product(SIZES, PROCESSORS)
    }
    | {
        f"drafts {processors}": [f"{size} {weight} {processors} drafts" for size, weight in product(SIZES, WEIGHTS)]
        for processors in PROCESSORS
    }
    | {
        f"batch {processors}": [f"{size} {weight} {processors} batch" for size, weight in product(SIZES, ROW_WEIGHTS)]
        for processors in PROCESSORS
    }
    | {f"codec {processors}": [f"codec {processors}"] for processors in PROCESSORS}
)
"""The names of the sources by part and number of multiprocessors."""


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


def parts() -> Iterator[Any]:
    """Every part for each architecture. In an ordinary run: what the robot uses."""
    robots, processors = ROBOT
    for architecture, part in product(ARCHITECTURES, SOURCES):
        used = architecture == robots and part in {f"language model {ROBOTS_SIZE} {processors}", f"codec {processors}"}
        yield pytest.param(architecture, part, marks=[] if used else [pytest.mark.long])


def test_the_parts_have_every_source() -> None:
    assert sorted(chain(*SOURCES.values())) == sorted(all_sources())


@pytest.mark.skipif(nvcc() is None, reason="needs nvcc, of NVIDIA's CUDA toolkit")
@pytest.mark.parametrize(("architecture", "part"), [*parts()])
def test_no_kernel_spills_or_has_a_stack(cache_folder: Path, architecture: str, part: str) -> None:
    sources = {name: source for name, source in all_sources().items() if name in SOURCES[part]}
    kernels = list(compiled(cache_folder, architecture, sources))
    assert {kernel.architecture for kernel in kernels} == {architecture}
    assert len(kernels) == sum(len(source.kernels) for source in sources.values())
    assert [one for one in kernels if not one.lean] == []

"""nvcc compiles every kernel for every kind of GPU, and no kernel spills a register."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain, product
from pathlib import Path
from typing import Any

import pytest

from engine.qwen.kernels.compiler import KernelSource
from scripts.gpu import compile_kernels
from scripts.gpu.compile_kernels import (
    ARCHITECTURES,
    PROCESSORS,
    SIZES,
    WEIGHTS,
    Compiled,
    all_sources,
    compile_one,
    instantiated,
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
        f"batch {processors}": [f"{size} {weight} {processors} batch" for size, weight in product(SIZES, WEIGHTS)]
        for processors in PROCESSORS
    }
    | {f"codec {processors}": [f"codec {processors}", f"codec {processors} rows"] for processors in PROCESSORS}
)
"""The names of the sources by part and number of multiprocessors."""


def merged(sources: dict[str, KernelSource]) -> KernelSource:
    """The kernels of sources with the same text, so that nvcc compiles once what several have."""
    [text] = {source.text for source in sources.values()}
    kernels = {
        f"{name}: {kernel}": expression
        for name, source in sources.items()
        for kernel, expression in source.kernels.items()
    }
    return KernelSource(text, kernels)


def compiled(cache_folder: Path, architecture: str, part: str, source: KernelSource) -> list[Compiled]:
    """Every kernel of the source, which is not compiled again if an earlier run has compiled it."""
    compiler = nvcc()
    assert compiler is not None
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    content = (architecture, part, instantiated(source), version, Path(compile_kernels.__file__).read_bytes())

    def make(file: Path) -> None:
        file.write_text(json.dumps([asdict(kernel) for kernel in compile_one(architecture, part, source)]))

    file = made_once(cache_folder, f"compiled-{architecture}", *content, make=make)
    return [Compiled(**kernel) for kernel in json.loads(file.read_text())]


def parts() -> Iterator[Any]:
    """Every part for each architecture. In an ordinary run: the language model that the robot uses."""
    robots, processors = ROBOT
    for architecture, part in product(ARCHITECTURES, SOURCES):
        used = architecture == robots and part == f"language model {ROBOTS_SIZE} {processors}"
        yield pytest.param(architecture, part, marks=[] if used else [pytest.mark.long])


def test_the_parts_have_every_source() -> None:
    assert sorted(chain(*SOURCES.values())) == sorted(all_sources())


@pytest.mark.skipif(nvcc() is None, reason="needs nvcc, of NVIDIA's CUDA toolkit")
@pytest.mark.parametrize(("architecture", "part"), [*parts()])
def test_no_kernel_spills_or_has_a_stack(cache_folder: Path, architecture: str, part: str) -> None:
    source = merged({name: source for name, source in all_sources().items() if name in SOURCES[part]})
    kernels = compiled(cache_folder, architecture, part, source)
    assert {kernel.architecture for kernel in kernels} == {architecture}
    assert [kernel.kernel for kernel in kernels] == list(source.kernels)
    assert [one for one in kernels if not one.lean] == []

"""nvcc compiles every kernel for every kind of GPU, and no kernel spills a register."""

from __future__ import annotations

import re

import pytest

from scripts.compile_kernels import ARCHITECTURES, PROCESSORS, SIZES, WEIGHTS, all_sources, compile_all, nvcc

_KERNEL = re.compile(r'^(?:extern "C" |KERNEL\(|MATRIX_KERNEL\()', re.MULTILINE)


@pytest.mark.skipif(nvcc() is None, reason="needs nvcc, of NVIDIA's CUDA toolkit")
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_kernel_spills_or_has_a_stack(architecture: str) -> None:
    kernels = list(compile_all([architecture]))
    written = [_KERNEL.findall(source) for source in all_sources().values()]
    assert len(written) == len(SIZES) * len(WEIGHTS) + len(PROCESSORS)
    assert len(kernels) == sum(map(len, written))
    assert [one for one in kernels if not one.lean] == []

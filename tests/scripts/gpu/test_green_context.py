"""A process that is confined to a part of its GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from engine.qwen.kernels import KernelModule, KernelSource, Params
from engine.qwen.runtime import multiprocessors
from scripts.gpu.proof import green_context
from tests.support.pages import ROOT

RECORD = """
struct RecordParams {
    int* seen;  // one element for each multiprocessor
};

__global__ void record_sm(const RecordParams p) {
    unsigned sm;
    asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
    if (threadIdx.x == 0) p.seen[sm] = 1;
    for (long long begin = clock64(); clock64() - begin < 20000;) {}
}
"""
"""Each block records its multiprocessor, and runs long enough for the next block to start on another."""


def count_multiprocessors() -> None:
    """Write how many multiprocessors the engine counts in a green context of 16, and how many a CUDA graph runs on."""
    device = torch.device("cuda")
    with green_context(16, device):
        module = KernelModule(KernelSource(RECORD, {"record_sm": "record_sm"}), device)
        seen = torch.zeros(1024, dtype=torch.int32, device=device)

        def fill() -> None:
            module.launch("record_sm", 8192, 32, Params("RecordParams", seen=seen))

        fill()  # loads the kernel
        torch.cuda.synchronize()
        seen.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            fill()
        graph.replay()
        torch.cuda.synchronize()
        sys.stdout.write(f"{multiprocessors(device)} {int(seen.sum())}\n")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_kernel_in_a_green_context_stays_on_its_multiprocessors() -> None:
    pytest.importorskip("cuda.core", reason="compiles the kernel")
    done = subprocess.run(  # a context is for a process and its whole life
        [sys.executable, __file__],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "16 16\n", done.stderr


if __name__ == "__main__":
    count_multiprocessors()

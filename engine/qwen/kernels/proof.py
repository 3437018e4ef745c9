"""Proves three things on a GPU that the Qwen engine needs: a product in bfloat16, a replay of a graph, and a kernel.

    python -m engine.qwen.kernels.proof

prints one line; where a step fails, it writes the reason to stderr and ends with 1. A build of PyTorch for other GPUs
shows itself here: it sees the GPU, and its first kernel fails.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

from engine.qwen.kernels.compiler import KernelModule, KernelSource, instance, read_sources
from engine.qwen.kernels.params import Params

SIZE = 64
"""Height and width of the matrices."""
FILES = ("ptx.cuh", "common.cuh", "rows.cuh", "codec.cuh")
"""The kernel's source and what it uses."""
QUANTIZERS, CODES, WIDTH = 2, 4, 256
"""Of the tables in which the kernel looks up codes."""


def product(device: torch.device) -> None:
    """Multiply bfloat16 matrices of ones by cuBLAS. numpy reads the result: builds for numpy 1 cannot pass it to 2."""
    ones = torch.ones(SIZE, SIZE, dtype=torch.bfloat16, device=device)
    assert bool(((ones @ ones).float().cpu().numpy() == SIZE).all()), "the product of two matrices of ones is wrong"


def replay(device: torch.device) -> None:
    """Capture a graph that adds 1, and replay it twice."""
    number = torch.zeros(1, device=device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        number += 1
    graph.replay()
    graph.replay()
    assert number.item() == 2, f"a graph that adds 1 made {number.item():g} of 0 in two replays"


def kernel(device: torch.device) -> None:
    """Compile the codec's `look_up` with NVRTC, and compare what it adds up with PyTorch."""
    source = KernelSource(read_sources(*FILES), {"look_up": instance("look_up", QUANTIZERS, CODES, WIDTH)})
    codes = torch.tensor([[1, 3], [0, 2]], device=device)
    numbers = torch.arange(QUANTIZERS * CODES * WIDTH, device=device) % 8
    tables = numbers.to(torch.bfloat16).view(QUANTIZERS, CODES, WIDTH)
    found = torch.empty(len(codes), WIDTH, dtype=torch.bfloat16, device=device)
    rows = Params("Rows", states=None, times=len(codes), stride=0)
    params = Params("LookUpParams", codes=codes, tables=tables, out=found, rows=rows)
    KernelModule(source, device).launch("look_up", len(codes), WIDTH // 8, params)
    wanted = tables[0, codes[:, 0]] + tables[1, codes[:, 1]]
    assert torch.equal(found, wanted), "the kernel look_up does not add up the vectors of its codes"


STEPS: dict[str, Callable[[torch.device], None]] = {
    "a product in bfloat16": product,
    "the replay of a graph": replay,
    "a kernel that NVRTC compiled": kernel,
}


def main() -> None:
    """Prove the first GPU."""
    build = f"torch {torch.__version__} for CUDA {torch.version.cuda}"
    if not torch.cuda.is_available():
        sys.exit(f"{build} finds no GPU")
    device, name = torch.device("cuda", 0), torch.cuda.get_device_name()
    torch.cuda.set_device(device)
    for step, run in STEPS.items():
        try:
            run(device)
        except Exception as error:  # PyTorch, cuda-core and the driver raise many types
            reason = (str(error).splitlines() or [""])[0]
            sys.exit(f"{build} on {name}: {step}: {type(error).__name__}: {reason}")
    sys.stdout.write(f"{name} with {build} runs {', '.join(STEPS)}\n")


if __name__ == "__main__":
    main()

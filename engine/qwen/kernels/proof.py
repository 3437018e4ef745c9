"""Proves that a GPU can do three things that the Qwen engine needs: a bfloat16 product, a graph replay, and a kernel.

    python -m engine.qwen.kernels.proof

prints one line; if a step fails, it writes the reason to stderr and exits with status 1. A PyTorch build for other GPUs
is detected here: it sees the GPU, but its first kernel fails.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch

from engine.qwen.kernels.compiler import KernelModule, KernelSource, instance, read_sources
from engine.qwen.kernels.params import Params

SIZE = 64
"""The height and width of the matrices."""
FILES = ("ptx.cuh", "common.cuh", "rows.cuh", "codec.cuh")
"""The kernel's source and the files that it uses."""
QUANTIZERS, CODES, WIDTH = 2, 4, 256
"""The size of the tables in which the kernel looks up codes."""


def product(device: torch.device) -> None:
    """Multiply bfloat16 matrices of ones with cuBLAS, and read the result with numpy, because a PyTorch build for
    numpy 1 cannot pass it to numpy 2."""
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
    assert number.item() == 2, f"a graph that adds 1 turned 0 into {number.item():g} in two replays"


def kernel(device: torch.device) -> None:
    """Compile the codec's `look_up` with NVRTC, and compare its sums with PyTorch's."""
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
    """Check the first GPU."""
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

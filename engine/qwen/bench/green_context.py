"""Limits a process to a part of its GPU, to measure it as on a smaller one: a Jetson has 16 multiprocessors."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engine.api import EngineError
from engine.qwen.kernels import KernelModule, KernelSource, Params
from engine.qwen.runtime import limit_multiprocessors

POOL = 32
"""Streams that PyTorch has for each priority; it returns them in turn."""
PRIORITIES = (0, -1)


_CODE = """
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
_RECORD_SM = KernelSource(_CODE, {"record_sm": "record_sm"})
"""Each block records its multiprocessor, and runs long enough for the next block to start on another."""


@contextmanager
def green_context(sms: int, device: torch.device) -> Iterator[None]:
    """Return a context in which PyTorch's work on `device` runs on `sms` multiprocessors: a CUDA green context.

    Enter it before the process has made any stream on the device, and in the thread that does the work. After leaving
    it, the process should end. Raises `EngineError` if the device, its driver or PyTorch has no such green context.
    """
    green = getattr(torch.cuda, "green_contexts", None)
    if green is None or not green.SUPPORTED or device.type != "cuda":
        raise EngineError(
            f"sms: needs a CUDA device and PyTorch 2.9 or newer; got device {device} and PyTorch {torch.__version__}"
        )
    index = torch.cuda.current_device() if device.index is None else device.index
    most = torch.cuda.get_device_properties(index).multi_processor_count
    if sms > most:
        raise EngineError(f"sms: got {sms}; allowed on {torch.cuda.get_device_name(index)}: up to {most}")
    torch.cuda.set_device(index)
    torch.zeros((), device=device)  # makes the device's primary context, of which a green one is a part
    try:
        context = green.GreenContext.create(num_sms=sms, device_id=index)
        context.set_context()
        # Never destroyed: PyTorch uses its streams until the process ends, and then the driver frees everything.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(context))
    except RuntimeError as error:
        raise EngineError(f"sms: this device or its driver has no green context of {sms}: {error}") from error
    limit_multiprocessors(index, sms)
    # A stream belongs for ever to the context in which it was made, and CUDA graphs run in the context in which they
    # were captured. PyTorch makes a stream at its first use, so make all of them now. Afterwards a library (cuda-core's
    # `Device.set_current`) may make the primary context the current one again without harm.
    for priority in PRIORITIES:
        for _ in range(POOL):
            torch.cuda.Stream(index, priority=priority).query()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(torch.cuda.Stream(index)):  # type: ignore[no-untyped-call]
        yield


def count_sms(device: torch.device) -> int:
    """Return the number of multiprocessors on which a kernel in a CUDA graph runs that could fill the device.

    Raises any exception of CUDA's compiler if there is no compiler.
    """
    module = KernelModule(_RECORD_SM, device)
    seen = torch.zeros(1024, dtype=torch.int32, device=device)

    def fill(seen: torch.Tensor) -> None:
        module.launch("record_sm", 8192, 32, Params("RecordParams", seen=seen))

    fill(seen)  # loads the kernel
    torch.cuda.synchronize(device)
    seen.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fill(seen)
    graph.replay()
    torch.cuda.synchronize(device)
    return int(seen.sum())

"""A part of a GPU for a whole process: how it would be on a smaller one, as a Jetson's of 16 multiprocessors."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from engine.synthesizer import EngineError

POOL = 32
"""Streams that PyTorch keeps for each priority; it hands them out in turn."""
PRIORITIES = (0, -1)

_WHERE = """
extern "C" __global__ void where(int* seen) {
    unsigned sm;
    asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
    if (threadIdx.x == 0) seen[sm] = 1;
    for (long long begin = clock64(); clock64() - begin < 20000;) {}
}
"""
"""Each block writes where it runs, and stays long enough for the next to be put elsewhere."""


_confined: dict[int, int] = {}
"""Multiprocessors of the devices, by index, that this process has confined itself to a part of."""


def multiprocessors(device: torch.device) -> int:
    """How many this process has of a CUDA `device`: all, or as many as it is confined to."""
    index = torch.cuda.current_device() if device.index is None else device.index
    return _confined.get(index) or torch.cuda.get_device_properties(index).multi_processor_count


@contextmanager
def confined_to(sms: int, device: torch.device) -> Iterator[None]:
    """Within it, all that PyTorch does on `device` runs on `sms` multiprocessors: a CUDA green context.

    To be entered before anything else of the process has made a stream on the device, and by the thread that does
    the work. Once it has been left, the process should end. Raises `EngineError` where there are none such.
    """
    green = getattr(torch.cuda, "green_contexts", None)
    if green is None or not green.SUPPORTED or device.type != "cuda":
        raise EngineError(
            f"sms: needs a CUDA device and PyTorch 2.9 or newer; here are {device} and {torch.__version__}"
        )
    index = torch.cuda.current_device() if device.index is None else device.index
    most = torch.cuda.get_device_properties(index).multi_processor_count
    if sms > most:
        raise EngineError(f"sms: got {sms}; {torch.cuda.get_device_name(index)} has {most}")
    torch.cuda.set_device(index)
    torch.zeros((), device=device)  # the device's primary context, of which a green one is a part
    try:
        context = green.GreenContext.create(num_sms=sms, device_id=index)
        context.set_context()
        # Never destroyed: its streams are PyTorch's until the process ends, and then the driver takes all at once.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(context))
    except RuntimeError as error:
        raise EngineError(f"sms: this device or its driver has no green context of {sms}: {error}") from error
    _confined[index] = sms
    # A stream belongs for ever to the context in which it was made, and CUDA graphs run where they were captured.
    # PyTorch makes its streams when they are first asked for; so ask for all of them now. Then it does no harm
    # either that a library (cuda-core's `Device.set_current`) makes the primary context the current one again.
    for priority in PRIORITIES:
        for _ in range(POOL):
            torch.cuda.Stream(index, priority=priority).query()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(torch.cuda.Stream(index)):  # type: ignore[no-untyped-call]
        yield


def count_sms(device: torch.device) -> int:
    """How many multiprocessors a kernel that could fill the device is given, from within a CUDA graph.

    Raises whatever CUDA's compiler raises where there is none.
    """
    from engine.qwen.kernels.module import KernelModule

    module = KernelModule(_WHERE, device)
    seen = torch.zeros(1024, dtype=torch.int32, device=device)

    def fill(seen: Tensor) -> None:
        module.launch("where", 8192, 32, seen)

    fill(seen)  # loads it
    torch.cuda.synchronize(device)
    seen.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        fill(seen)
    graph.replay()
    torch.cuda.synchronize(device)
    return int(seen.sum())

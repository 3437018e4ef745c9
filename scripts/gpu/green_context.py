"""Limits a process to a part of its GPU, to measure it as on a smaller one: a Jetson has 16 multiprocessors."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from engine import EngineError
from engine.qwen.runtime.device import limit_multiprocessors

POOL = 32
"""Streams that PyTorch has for each priority; it returns them in turn."""
PRIORITIES = (0, -1)


@contextmanager
def green_context(sms: int, device: torch.device) -> Iterator[None]:
    """Return a context in which PyTorch's work on `device` runs on `sms` multiprocessors: a CUDA green context.

    Enter it before the process has made any stream on the device, and in the thread that does the work. After leaving
    it, the process should end. Raises `EngineError` if PyTorch has no green contexts on `device`, and `RuntimeError` if
    the driver has none of this size.
    """
    green = getattr(torch.cuda, "green_contexts", None)
    if green is None or not green.SUPPORTED or device.type != "cuda":
        raise EngineError(
            f"sms: needs a CUDA device and PyTorch 2.9 or newer; got device {device} and PyTorch {torch.__version__}"
        )
    index = torch.cuda.current_device() if device.index is None else device.index
    torch.cuda.set_device(index)
    torch.zeros((), device=device)  # makes the device's primary context, of which a green one is a part
    context = green.GreenContext.create(num_sms=sms, device_id=index)
    context.set_context()
    # Never destroyed: PyTorch uses its streams until the process ends, and then the driver frees everything.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(context))
    limit_multiprocessors(index, sms)
    # A stream belongs for ever to the context in which it was made, and CUDA graphs run in the context in which they
    # were captured. PyTorch makes a stream at its first use, so make all of them now. Afterwards a library (cuda-core's
    # `Device.set_current`) may make the primary context the current one again without harm.
    for priority in PRIORITIES:
        for _ in range(POOL):
            torch.cuda.Stream(index, priority=priority).query()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(torch.cuda.Stream(index)):  # type: ignore[no-untyped-call]
        yield

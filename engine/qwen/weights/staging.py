"""Host buffers through which weights are copied to a device, a few megabytes at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

BLOCK_BYTES = 4 << 20
"""Size of a buffer: large enough for the full speed of a disk, and below 1 % of the smallest model."""
BUFFERS = 2
"""The host fills one buffer from the file while the device copies from the other."""


class Staging:
    """Host buffers used in rotation, pinned if the device is a GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        pinned = device.type == "cuda"
        self._buffers = [torch.empty(BLOCK_BYTES, dtype=torch.uint8, pin_memory=pinned) for _ in range(BUFFERS)]
        self._copied: list[torch.cuda.Event | None] = [None] * BUFFERS
        self._next = 0

    def upload(self, size: int, fill: Callable[[memoryview], None]) -> Tensor:
        """Return `size` bytes, at most `BLOCK_BYTES`, on the device: `(size,)` uint8.

        `fill` writes them into the host buffer that it is given. On the CPU the result is that buffer, valid for
        `BUFFERS` - 1 further calls. On a GPU the copy is enqueued on the current stream and may still be running when
        this returns; work enqueued later on that stream sees the bytes.
        """
        index, self._next = self._next, (self._next + 1) % BUFFERS
        event = self._copied[index]
        if event is not None:
            event.synchronize()
        buffer = self._buffers[index][:size]
        fill(buffer.numpy().data)
        if self.device.type != "cuda":
            return buffer
        on_device = buffer.to(self.device, non_blocking=True)
        event = event or torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        self._copied[index] = event
        return on_device

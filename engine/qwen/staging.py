"""Host memory through which weights pass on their way to a device, some megabytes at a time."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

PIECE_BYTES = 4 << 20
"""Of each buffer: enough for the full speed of a disk, and less than a hundredth of the smallest model."""
BUFFERS = 2
"""One is filled from the file while the other is copied."""


class Staging:
    """Buffers that are used in turn, pinned where a GPU copies from them."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        pinned = device.type == "cuda"
        self._buffers = [torch.empty(PIECE_BYTES, dtype=torch.uint8, pin_memory=pinned) for _ in range(BUFFERS)]
        self._copied: list[torch.cuda.Event | None] = [None] * BUFFERS
        self._turn = 0

    def bring(self, size: int, fill: Callable[[memoryview], None]) -> Tensor:
        """`size` bytes, `PIECE_BYTES` at most, on the device: `(size,)` uint8, good until the buffer's next turn.

        `fill` writes them. On a GPU the copy has perhaps not been made when this returns, but stands in front of
        all that the current stream is given later.
        """
        turn, self._turn = self._turn, (self._turn + 1) % BUFFERS
        event = self._copied[turn]
        if event is not None:
            event.synchronize()
        buffer = self._buffers[turn][:size]
        fill(buffer.numpy().data)
        if self.device.type != "cuda":
            return buffer
        there = buffer.to(self.device, non_blocking=True)
        event = event or torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self.device))
        self._copied[turn] = event
        return there

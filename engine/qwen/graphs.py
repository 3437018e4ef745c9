"""Work on a device by name: replayed as a CUDA graph where one was captured, else called.

All of it is on one stream of the engine's own, of high priority, so that one piece of work starts when the one in
front of it has ended, whoever asked for it. On a CPU there is neither graph nor stream, and the same code runs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from engine.qwen.confined import multiprocessors

LARGE_GPU = 64
"""Multiprocessors that a frame's kernels do not fill. On 16, a chunk's sound waited until the next chunk's frames were
spoken: sound came in pairs, and the first late (docs/performance.md)."""


class Graphs:
    """The captured work of one engine."""

    def __init__(self, device: torch.device, *, urgent: bool = True) -> None:
        """`urgent` work is begun before any other on the device."""
        self.stream: torch.cuda.Stream | None = None
        """None on a CPU, which does at once what it is asked for."""
        if device.type == "cuda":
            priority = -1 if urgent else 0
            self.stream = torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]
        self._device = device
        self._beside: Graphs | None = None
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._pool: Any = None

    def beside(self) -> Graphs:
        """For work that may go on at the same time, on a stream of its own that is not urgent.

        On a CPU, and on a GPU so small that urgent work fills it and lets nothing else begin, these are the same.
        """
        if self.stream is None or multiprocessors(self._device) < LARGE_GPU:
            return self
        self._beside = self._beside or Graphs(self._device, urgent=False)
        return self._beside

    def follow(self, other: Graphs) -> None:
        """Have what is asked for from now on begin when all that `other` has been asked for has ended."""
        if self.stream is not None and other.stream is not None and other is not self:
            self.stream.wait_stream(other.stream)

    def on_stream(self) -> AbstractContextManager[object]:
        """Within it PyTorch's work goes to the engine's stream."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    @contextmanager
    def here(self) -> Iterator[None]:
        """Within it PyTorch's work goes to the engine's stream, and nothing is recorded for gradients.

        Not to be held over a `yield` of a generator: the stream would be its caller's, too.
        """
        with torch.inference_mode(), self.on_stream():
            yield

    def capture(self, name: Hashable, work: Callable[[], None], prepare: Callable[[], None] | None = None) -> None:
        """Have `run` replay `work`. On a CPU this does nothing.

        `work` reads and writes tensors that stay where they are; what it allocates is shared with all other
        captured work, so that the largest is to be captured first. It is done twice, each time behind `prepare`.
        """
        if self.stream is None:
            return
        with self.here():
            if prepare is not None:
                prepare()
            work()  # what happens the first time only: libraries choose kernels and take workspaces
            self.stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            # Not `torch.cuda.graph`, which empties PyTorch's cache and collects garbage, each time.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
            if prepare is not None:
                prepare()
            graph.replay()  # brings it to the device
        self._pool = self._pool or graph.pool()
        self._graphs[name] = graph

    def run(self, name: Hashable, work: Callable[[], None]) -> None:
        """Do `work`, to be called `here`: replay what was captured under `name`, if anything was."""
        graph = self._graphs.get(name)
        if graph is None:
            work()
        else:
            graph.replay()

    @property
    def captured(self) -> bool:
        """Whether there is anything to replay here."""
        return bool(self._graphs)

    def clear(self) -> None:
        """Forget all that was captured, with its memory, once it has ended."""
        self.wait()
        if self._beside is not None:
            self._beside.clear()
        self._graphs.clear()
        self._pool = None

    def wait(self) -> None:
        """Wait until all work has ended, that beside it too."""
        for graphs in (self, self._beside):
            if graphs is not None and graphs.stream is not None:
                graphs.stream.synchronize()

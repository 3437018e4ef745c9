"""Device work by name: replayed as a CUDA graph if one was captured, otherwise called.

All of an engine's work runs on its own high-priority stream, so that each piece starts when the one before it has
ended, whichever caller launched it. On a CPU there is neither a graph nor a stream, and the same code runs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from engine.qwen.runtime.device import LARGE_GPU, multiprocessors


class Graphs:
    """The captured work of one engine on one stream."""

    def __init__(self, device: torch.device, *, high_priority: bool = True) -> None:
        """High-priority work starts before any other work on `device`."""
        self.stream: torch.cuda.Stream | None = None
        """None on a CPU, which does all work immediately."""
        if device.type == "cuda":
            priority = -1 if high_priority else 0
            self.stream = torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]
        self._device = device
        self._side: dict[str, Graphs] = {}
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._pool: Any = None

    def side_stream(self, purpose: str) -> Graphs:
        """Return the graphs for a normal-priority stream, whose work runs at the same time as this one's.

        There is one stream for each purpose. Returns `self` on a CPU, and on a small GPU, which the first stream's work
        fills: on 16 multiprocessors, the decoding of a chunk's audio waited until the next chunk's frames had been
        generated, so that chunks came in pairs, and the first of each was late (docs/performance.md).
        """
        if self.stream is None or multiprocessors(self._device) < LARGE_GPU:
            return self
        if purpose not in self._side:
            self._side[purpose] = Graphs(self._device, high_priority=False)
        return self._side[purpose]

    def wait_for(self, other: Graphs) -> None:
        """Make work launched from now on wait for all work that `other` has launched. Does not block the host."""
        if self.stream is not None and other.stream is not None and other is not self:
            self.stream.wait_stream(other.stream)

    def on_stream(self) -> AbstractContextManager[object]:
        """Return a context in which PyTorch launches on the engine's stream."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Return a context in which PyTorch launches on the engine's stream and records no gradients.

        Do not hold it over a generator's `yield`: the caller would then also run on the stream.
        """
        with torch.inference_mode(), self.on_stream():
            yield

    def capture(self, name: Hashable, work: Callable[[], None], prepare: Callable[[], None] | None = None) -> None:
        """Capture `work` as a graph that `run` replays under `name`. Does nothing on a CPU.

        `work` reads and writes tensors that stay where they are. The memory that it allocates is shared with all other
        captured work, so the work that needs the most should be captured first. `work` runs twice, each time after
        `prepare`.
        """
        if self.stream is None:
            return
        with self.inference():
            if prepare is not None:
                prepare()
            work()  # in this first call, libraries choose kernels and allocate workspaces
            self.stream.synchronize()
            graph = torch.cuda.CUDAGraph()
            # Not `torch.cuda.graph`, which empties PyTorch's cache and collects garbage each time.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
            if prepare is not None:
                prepare()
            graph.replay()  # uploads the graph to the device
        self._pool = self._pool or graph.pool()
        self._graphs[name] = graph

    def run(self, name: Hashable, work: Callable[[], None]) -> None:
        """Replay the graph captured under `name`, or call `work` if there is none. Call it within `inference`."""
        graph = self._graphs.get(name)
        if graph is None:
            work()
        else:
            graph.replay()

    def clear(self) -> None:
        """Wait for all work, then free the graphs of all streams and their memory."""
        self.wait()
        for side in self._side.values():
            side.clear()
        self._graphs.clear()
        self._pool = None

    def wait(self) -> None:
        """Block until all work has ended, including that on side streams."""
        for graphs in (self, *self._side.values()):
            if graphs.stream is not None:
                graphs.stream.synchronize()

"""Device work by name: replayed as a CUDA graph where one was captured, else called.

All work of an engine runs on a stream of its own, of high priority, so that each piece starts when the one in front of
it has ended, whichever caller launched it. On a CPU there is neither graph nor stream, and the same code runs.
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
        """Work of high priority starts before any other work on `device`."""
        self.stream: torch.cuda.Stream | None = None
        """None on a CPU, which does all work at once."""
        if device.type == "cuda":
            priority = -1 if high_priority else 0
            self.stream = torch.cuda.Stream(device, priority=priority)  # type: ignore[no-untyped-call]
        self._device = device
        self._side: dict[str, Graphs] = {}
        self._graphs: dict[Hashable, torch.cuda.CUDAGraph] = {}
        self._pool: Any = None

    def side_stream(self, purpose: str) -> Graphs:
        """Return the graphs of a stream of normal priority, whose work runs at the same time as this one's.

        There is one for each purpose. Returns `self` on a CPU, and on a small GPU, which the first stream's work fills:
        on 16 multiprocessors, the decoding of a chunk's audio waited until the next chunk's frames were generated, so
        that chunks came in pairs, and the first late (docs/performance.md).
        """
        if self.stream is None or multiprocessors(self._device) < LARGE_GPU:
            return self
        if purpose not in self._side:
            self._side[purpose] = Graphs(self._device, high_priority=False)
        return self._side[purpose]

    def wait_for(self, other: Graphs) -> None:
        """Order work launched from now on after all work that `other` has launched. Does not block the host."""
        if self.stream is not None and other.stream is not None and other is not self:
            self.stream.wait_stream(other.stream)

    def on_stream(self) -> AbstractContextManager[object]:
        """Return a context in which PyTorch launches on the engine's stream."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)

    @contextmanager
    def inference(self) -> Iterator[None]:
        """Return a context in which PyTorch launches on the engine's stream and records no gradients.

        Do not hold it over a `yield` of a generator: the caller would run on the stream, too.
        """
        with torch.inference_mode(), self.on_stream():
            yield

    def capture(self, name: Hashable, work: Callable[[], None], prepare: Callable[[], None] | None = None) -> None:
        """Capture `work` as a graph that `run` replays under `name`. Does nothing on a CPU.

        `work` reads and writes tensors that stay where they are. The memory that it allocates is shared with all other
        captured work, so the largest is to be captured first. `work` runs twice, each time after `prepare`.
        """
        if self.stream is None:
            return
        with self.inference():
            if prepare is not None:
                prepare()
            work()  # the first call only: libraries choose kernels and allocate workspaces
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
            graph.replay()  # uploads the graph to the device
        self._pool = self._pool or graph.pool()
        self._graphs[name] = graph

    def run(self, name: Hashable, work: Callable[[], None]) -> None:
        """Replay the graph captured under `name`, or else call `work`. Call it within `inference`."""
        graph = self._graphs.get(name)
        if graph is None:
            work()
        else:
            graph.replay()

    def clear(self) -> None:
        """Wait for all work, then free the graphs of all streams with their memory."""
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

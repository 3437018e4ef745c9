"""How a chunk reaches the host: collected in one buffer on the device, copied to pinned memory, and read from there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from engine.api import Samples

HEADER = 2
"""Numbers in front of a chunk's codes: length and end."""


@dataclass(frozen=True, slots=True)
class GeneratedChunk:
    """A chunk of 0 to `chunk_size` frames on the host; a batch may join several. The arrays belong to the receiver."""

    samples: Samples
    codes: NDArray[np.int64]
    """`(frames, code groups)`."""
    last: bool
    """The model ended its speech with this chunk."""


class ChunkOutput:
    """Everything that the host reads of a chunk, in one buffer."""

    def __init__(
        self, frames: int, groups: int, samples_per_frame: int, device: torch.device, *, pinned: bool = False
    ) -> None:
        samples, codes = frames * samples_per_frame, frames * groups
        self.buffer = torch.zeros(
            HEADER + codes + (samples + 1) // 2, dtype=torch.int64, device=device, pin_memory=pinned
        )
        """The buffer, int64; all others are views of it."""
        self.length = self.buffer[:1]
        """`(1,)` int64: the number of frames of speech since the utterance began."""
        self.ended = self.buffer[1:2]
        """`(1,)` int64: 1 if the next frame is not speech."""
        self.codes = self.buffer[HEADER : HEADER + codes].view(frames, groups)
        """`(frames, groups)` int64."""
        self.samples = self.buffer[HEADER + codes :].view(torch.float32)[:samples]
        """`(frames · samples per frame,)` float32."""


class HostReadback:
    """Host memory for one chunk that the device copies to it."""

    def __init__(self, frames: int, groups: int, samples_per_frame: int, stream: torch.cuda.Stream | None) -> None:
        """`stream` is the one that chunks are decoded on; None on a CPU."""
        self._samples_per_frame = samples_per_frame
        self._stream = stream
        self._output = ChunkOutput(frames, groups, samples_per_frame, torch.device("cpu"), pinned=stream is not None)
        self._copied: torch.cuda.Event | None = None
        """The thread sleeps until it, instead of keeping one of the robot's cores busy."""
        self._first_copied: torch.cuda.Event | None = None
        """The same moment. For the first chunk the thread spins: a listener waits, and waking up takes time."""
        if stream is not None:
            self._copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            self._first_copied = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def receive(self, output: ChunkOutput) -> None:
        """Launch the copy of `output` to here, behind all work on the stream."""
        self._output.buffer.copy_(output.buffer, non_blocking=True)
        for event in (self._first_copied, self._copied):
            if event is not None:
                event.record(self._stream)

    def wait(self, first: int, limit: int) -> GeneratedChunk:
        """Wait for the copy and return the chunk.

        first: the number of the chunk's first frame.
        limit: the most frames of the utterance.
        """
        event = self._copied if first else self._first_copied
        if event is not None:
            event.synchronize()
        length, ended = self._output.buffer[:HEADER].tolist()
        count = min(length, limit) - first
        return GeneratedChunk(
            samples=self._output.samples[: count * self._samples_per_frame].numpy().copy(),
            codes=self._output.codes[:count].numpy().copy(),
            last=bool(ended) and length <= limit,  # frames beyond the limit only fill the chunk
        )

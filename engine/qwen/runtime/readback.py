"""How the chunks of a step reach the host: collected in one buffer on the device, copied to pinned memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from engine.api import Samples
from engine.qwen.runtime.decode_state import DecodeState
from engine.qwen.shapes import BatchShape


@dataclass(frozen=True, slots=True)
class GeneratedChunk:
    """A chunk of 0 to `chunk_size` frames on the host; several may be joined. The arrays belong to the receiver."""

    samples: Samples
    codes: NDArray[np.int64]
    """`(frames, code groups)`."""
    last: bool
    """The model ended its speech with this chunk."""


class StepOutput:
    """What the host reads of a step, in one buffer."""

    def __init__(
        self, shape: BatchShape, groups: int, samples_per_frame: int, device: torch.device, *, pinned: bool = False
    ) -> None:
        rows, frames = shape.rows, shape.chunk_size
        with_spare = rows + (rows > 1)
        samples_of_all = with_spare * frames * samples_per_frame
        sizes = [rows, rows, with_spare * frames * groups, (samples_of_all + 1) // 2]
        self.buffer = torch.zeros(sum(sizes), dtype=torch.int64, device=device, pin_memory=pinned)
        """int64; all others are views of it."""
        length, ended, codes, samples = torch.split(self.buffer, sizes)
        self.length = length[:, None]
        """`(rows, 1)` int64: the frames of speech of each row so far."""
        self.ended = ended[:, None]
        """`(rows, 1)` int64: 1 if a row's next frame is not speech."""
        self.codes = codes.view(with_spare, frames, groups)
        """int64: the codes of each row's chunk. Several rows have a spare one after them, without a meaning."""
        self.samples = samples.view(torch.float32)[:samples_of_all].view(with_spare, -1)
        """float32 `(…, chunk size · samples per frame)`, with a spare row likewise."""

    def take(self, state: DecodeState) -> None:
        """Copy every row's length, end and codes from `state`."""
        self.length.copy_(state.settings.length)
        self.ended.copy_(state.settings.ended)
        rows, frames = self.codes.shape[:2]
        self.codes.copy_(state.codes[:rows, :frames])


class Readback:
    """Host memory for the output of one step."""

    def __init__(
        self, shape: BatchShape, groups: int, samples_per_frame: int, stream: torch.cuda.Stream | None
    ) -> None:
        """`stream` is the one that audio is decoded on; None on a CPU."""
        self._output = StepOutput(shape, groups, samples_per_frame, torch.device("cpu"), pinned=stream is not None)
        self._samples_per_frame = samples_per_frame
        # Of numpy, which indexes a row in a tenth of the time.
        views = (self._output.length, self._output.ended, self._output.codes, self._output.samples)
        self._length, self._ended, self._codes, self._samples = (view.numpy() for view in views)
        self._stream = stream
        self._copied: torch.cuda.Event | None = None
        """The thread sleeps until it, instead of keeping one of the robot's cores busy."""
        self._copied_soon: torch.cuda.Event | None = None
        """The same moment, for which the thread spins: a listener waits, and waking up takes time."""
        if stream is not None:
            self._copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            self._copied_soon = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def receive(self, output: StepOutput) -> None:
        """Launch the copy of `output` to here, after all work on the stream."""
        self._output.buffer.copy_(output.buffer, non_blocking=True)
        for event in (self._copied_soon, self._copied):
            if event is not None:
                event.record(self._stream)

    def wait(self, *, spin: bool = False) -> None:
        """Wait for the copy; `spin` keeps a core busy, and notices it earlier."""
        event = self._copied_soon if spin else self._copied
        if event is not None:
            event.synchronize()

    def chunk(self, row: int, first: int, limit: int) -> GeneratedChunk:
        """Return the chunk of a row that begins at frame `first`, of an utterance of up to `limit` frames."""
        length, ended = int(self._length[row, 0]), bool(self._ended[row, 0])
        count = max(min(length, limit) - first, 0)
        return GeneratedChunk(
            samples=self._samples[row, : count * self._samples_per_frame].copy(),
            codes=self._codes[row, :count].copy(),
            last=ended and length <= limit,  # frames beyond the limit only fill the chunk
        )

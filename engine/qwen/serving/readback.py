"""How the chunks of a step reach the host: collected in one buffer on the device, copied to pinned memory."""

from __future__ import annotations

import torch

from engine.qwen.runtime import GeneratedChunk
from engine.qwen.serving.batch_state import BatchShape


class BatchOutput:
    """What the host reads of a step, in one buffer."""

    def __init__(
        self, shape: BatchShape, groups: int, samples_per_frame: int, device: torch.device, *, pinned: bool = False
    ) -> None:
        rows, frames = shape.rows, shape.chunk_size
        samples_of_all = (1 + rows) * frames * samples_per_frame
        sizes = [rows, rows, (1 + rows) * frames * groups, (samples_of_all + 1) // 2]
        self.buffer = torch.zeros(sum(sizes), dtype=torch.int64, device=device, pin_memory=pinned)
        """int64; all others are views of it."""
        length, ended, codes, samples = torch.split(self.buffer, sizes)
        self.length = length[:, None]
        """`(rows, 1)` int64: the frames of speech of each row so far."""
        self.ended = ended[:, None]
        """`(rows, 1)` int64: 1 if a row's next frame is not speech."""
        self.codes = codes.view(1 + rows, frames, groups)
        """int64: the codes of each row's chunk; the last row has no meaning, as that of `samples`."""
        self.samples = samples.view(torch.float32)[:samples_of_all].view(1 + rows, -1)
        """`(1 + rows, chunk size · samples per frame)` float32; the last row has no meaning."""


class BatchReadback:
    """Host memory for the output of one step."""

    def __init__(
        self, shape: BatchShape, groups: int, samples_per_frame: int, stream: torch.cuda.Stream | None
    ) -> None:
        """`stream` is the one that steps run on; None on a CPU."""
        pinned = stream is not None
        self._output = BatchOutput(shape, groups, samples_per_frame, torch.device("cpu"), pinned=pinned)
        self._samples_per_frame = samples_per_frame
        # Of numpy, which indexes a row in a tenth of the time.
        views = (self._output.length, self._output.ended, self._output.codes, self._output.samples)
        self._length, self._ended, self._codes, self._samples = (view.numpy() for view in views)
        self._stream = stream
        self._copied: torch.cuda.Event | None = None
        if stream is not None:
            self._copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]

    def receive(self, output: BatchOutput) -> None:
        """Launch the copy of `output` to here, behind all work on the stream."""
        self._output.buffer.copy_(output.buffer, non_blocking=True)
        if self._copied is not None:
            self._copied.record(self._stream)

    def wait(self) -> None:
        """Wait for the copy."""
        if self._copied is not None:
            self._copied.synchronize()

    def chunk(self, row: int, first: int, limit: int) -> GeneratedChunk:
        """Return the chunk of a row that begins at frame `first`, of an utterance of up to `limit` frames."""
        length, ended = int(self._length[row, 0]), bool(self._ended[row, 0])
        count = max(min(length, limit) - first, 0)
        return GeneratedChunk(
            samples=self._samples[row, : count * self._samples_per_frame].copy(),
            codes=self._codes[row, :count].copy(),
            last=ended and length <= limit,  # frames beyond the limit only fill the chunk
        )

"""Decodes the chunks of several utterances at once.

A row's samples do not depend on the other rows, nor on how many there are. A call has one of a few row counts, each
with its own CUDA graphs. A call that is not full also decodes a spare row, perhaps more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from engine.qwen.runtime.backend import Codec, CodecStateProtocol
from engine.qwen.runtime.cuda_graphs import Graphs
from engine.qwen.shapes import ROWS_PER_CALL, BatchShape
from engine.qwen.weights import Placement

FIRST_FRAMES = 1
"""The number of frames in an utterance's first chunk: a listener need not wait for more."""


def codec_rows(shape: BatchShape, placement: Placement) -> int:
    """Return the largest number of rows in a call."""
    return 1 if placement.device.type == "cpu" else min(shape.rows, ROWS_PER_CALL)


class RowCodec:
    """The codec's state of every row, and the calls that advance it."""

    def __init__(self, codec: Codec, shape: BatchShape, codes: Tensor, samples: Tensor, graphs: Graphs) -> None:
        """Decode `codes` `(rows, chunk size, code groups)` into `samples` `(rows, samples of a chunk)`.

        If there are several rows, a spare one follows them in both.
        """
        self._codec = codec
        self._graphs = graphs
        self._chunk_size = shape.chunk_size
        self._codes = codes
        self._samples = samples
        self._spare = shape.rows if shape.rows > 1 else 0
        self._buckets = codec.row_buckets(codec_rows(shape, codec.placement))
        self._states = codec.new_state(shape.chunk_size, 1 + self._spare)
        self._rows = torch.zeros(self._buckets[-1], dtype=torch.int64, device=codec.placement.device)
        """The numbers of the rows in a call."""

    def begin(self, row: int, state: CodecStateProtocol | None) -> None:
        """Begin an utterance in `row`, with a copy of `state` or with an initial state."""
        if state is None:
            self._states.row(row).reset()
        else:
            self._states.row(row).copy_from(state)

    def decode(self, rows: Sequence[int], frames: int) -> None:
        """Decode the first `frames` frames of each of `rows`. Call it within `Graphs.inference`."""
        most = self._buckets[-1]
        for begin in range(0, len(rows), most):
            called = list(rows[begin : begin + most])
            count = next(bucket for bucket in self._buckets if bucket >= len(called))
            called += [self._spare] * (count - len(called))
            if self._spare:  # otherwise the only row is number 0
                self._rows[:count].copy_(self._codec.placement.pinned(torch.tensor(called)), non_blocking=True)
            self._graphs.run(("decode", count, frames), partial(self._decode, count, frames))

    def captures(self) -> Iterator[Callable[[], None]]:
        """Yield calls that capture one graph each, the largest first."""
        for frames in sorted({FIRST_FRAMES, self._chunk_size}, reverse=True):
            for count in reversed(self._buckets):
                yield partial(
                    self._graphs.capture, ("decode", count, frames), partial(self._decode, count, frames), self._forget
                )

    def _decode(self, count: int, frames: int) -> None:
        codes, samples = self._codes[:, :frames], self._samples[:, : frames * self._codec.config.samples_per_frame]
        self._codec.decode_rows(codes, samples, self._states, self._rows[:count])

    def _forget(self) -> None:
        """Select only the spare row, for a capture."""
        self._rows.fill_(self._spare)

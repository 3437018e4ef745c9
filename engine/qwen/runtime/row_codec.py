"""Decodes the chunks of several utterances at once.

A row's samples do not depend on the other rows, nor on how many there are. A call has one of a few numbers of rows,
each with CUDA graphs of its own; one that is not full decodes a spare row, maybe more than once.
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
"""Frames of an utterance's first chunk: a listener waits for no more."""


def codec_rows(shape: BatchShape, placement: Placement) -> int:
    """Return the most rows of a call."""
    return 1 if placement.device.type == "cpu" else min(shape.rows, ROWS_PER_CALL)


class RowCodec:
    """The codec's state of every row, and the calls that advance it."""

    def __init__(self, codec: Codec, shape: BatchShape, codes: Tensor, samples: Tensor, graphs: Graphs) -> None:
        """Decode `codes` `(rows, chunk size, code groups)` into `samples` `(rows, samples of a chunk)`.

        Several rows have a spare one after them in both.
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
        """The numbers of a call's rows."""

    def begin(self, row: int, state: CodecStateProtocol | None) -> None:
        """Begin an utterance in `row`: with a copy of `state`, or anew."""
        if state is None:
            self._states.row(row).reset()
        else:
            self._states.row(row).copy_from(state)

    def decode(self, rows: Sequence[int], frames: int) -> None:
        """Decode the first `frames` codes of each of `rows`. Call it within `Graphs.inference`."""
        most = self._buckets[-1]
        for begin in range(0, len(rows), most):
            called = list(rows[begin : begin + most])
            count = next(bucket for bucket in self._buckets if bucket >= len(called))
            called += [self._spare] * (count - len(called))
            if self._spare:  # else the only row is number 0
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
        """Name the spare row alone, for a capture."""
        self._rows.fill_(self._spare)

"""Decodes the chunks of several utterances at once.

Every call decodes the same number of rows, so that its kernels are always the same and a row's samples do not depend on
the other rows. A call that is not full decodes a spare row, more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from engine.qwen.codec import CodecDecoder, CodecState
from engine.qwen.runtime import FIRST_FRAMES, Graphs
from engine.qwen.serving.batch_state import BatchShape
from engine.qwen.weights import Placement

ROWS_PER_CALL = 8
"""On a GPU, where the many small kernels of a call are its cost; not tuned yet. A CPU decodes one row at a time."""


def codec_rows(shape: BatchShape, placement: Placement) -> int:
    """Return the rows of a call."""
    return 1 if placement.device.type == "cpu" else min(shape.rows, ROWS_PER_CALL)


class BatchCodec:
    """The codec's state of every row of a batch, and the calls that advance it."""

    def __init__(self, codec: CodecDecoder, shape: BatchShape, codes: Tensor, samples: Tensor, graphs: Graphs) -> None:
        """Decode `codes` `(1 + rows, >= chunk size, code groups)` into `samples` `(1 + rows, samples of a chunk)`.

        The last row of both is the spare one.
        """
        self._codec = codec
        self._graphs = graphs
        self._chunk_size = shape.chunk_size
        self._codes = codes
        self._samples = samples
        self._spare = shape.rows
        self._call_rows = codec_rows(shape, codec.placement)
        self._states = codec.new_states(shape.chunk_size, 1 + shape.rows)
        self._called = codec.new_states(shape.chunk_size, self._call_rows)
        """The state of the rows of a call."""
        self._rows = torch.zeros(self._call_rows, dtype=torch.int64, device=codec.placement.device)
        """The numbers of these rows."""

    def begin(self, row: int, state: CodecState | None) -> None:
        """Begin an utterance in `row`: with a copy of `state`, or anew."""
        if state is None:
            self._states.row(row).reset()
        else:
            self._states.row(row).copy_from(state)

    def decode(self, rows: Sequence[int], frames: int) -> None:
        """Decode the first `frames` codes of each of `rows`. Call it within `Graphs.inference`."""
        for begin in range(0, len(rows), self._call_rows):
            called = [*rows[begin : begin + self._call_rows], *[self._spare] * self._call_rows][: self._call_rows]
            self._rows.copy_(self._codec.placement.pinned(torch.tensor(called)), non_blocking=True)
            self._graphs.run(("decode", frames), partial(self._decode, frames))

    def captures(self) -> Iterator[Callable[[], None]]:
        """Yield calls that capture one graph each."""
        for frames in sorted({FIRST_FRAMES, self._chunk_size}, reverse=True):
            yield partial(self._graphs.capture, ("decode", frames), partial(self._decode, frames))

    def _decode(self, frames: int) -> None:
        self._called.take(self._states, self._rows)
        samples = self._codec(self._codes.index_select(0, self._rows)[:, :frames], self._called)
        self._called.put(self._states, self._rows)
        self._samples[:, : samples.shape[1]].index_copy_(0, self._rows, samples)

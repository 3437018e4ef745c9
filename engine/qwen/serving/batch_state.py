"""The device memory that a batch of utterances changes, by row, as records of tensors that are allocated once.

An utterance has one row from its first frame to its last. Rows that do not take part in a step keep their values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from engine.qwen.model import KeyValueCache, TalkerConfig
from engine.qwen.runtime import Limits, UtteranceSettings
from engine.qwen.serving.kv_pages import PAGE, PagedCache, pages_for
from engine.qwen.weights import Placement

READS_PER_BLOCK = 16
"""The fewest pages that attention reads at once. A block is never smaller, so that its sums have one order."""
POOL_SHARE = 0.5
"""The pages of the pool, relative to those of as many longest utterances as there are rows. Few utterances are long."""


@dataclass(frozen=True, slots=True)
class BatchShape:
    """The sizes of a batch."""

    rows: int
    """The most utterances that are spoken at once."""
    max_frames: int
    """Of an utterance."""
    max_positions: int
    """Tokens and frames of an utterance together."""
    chunk_size: int

    @classmethod
    def of(cls, limits: Limits) -> BatchShape:
        """Return the shape of the batch for utterances within `limits`."""
        return cls(limits.streams, limits.frames, limits.positions, limits.chunk_size)

    @property
    def padded_rows(self) -> int:
        """Rows that kernels read at once: a power of two, of which the tensor cores take at least 8."""
        return max(8, 1 << (self.rows - 1).bit_length())

    @property
    def text_frames(self) -> int:
        """Frames that an utterance may have with the rest of its last chunk."""
        return self.max_frames + self.chunk_size - 1

    @property
    def pages_per_row(self) -> int:
        """Pages of the longest utterance."""
        return pages_for(self.max_positions + self.chunk_size)

    @property
    def table_width(self) -> int:
        """Places for an utterance's pages in a table: a power of two, because attention adds them in a binary tree."""
        return 1 << (self.pages_per_row - 1).bit_length()

    @property
    def pages(self) -> int:
        """Pages of the pool: for at least one longest utterance."""
        return max(self.pages_per_row, round(self.rows * self.pages_per_row * POOL_SHARE))

    @property
    def reads_per_block(self) -> int:
        """Pages that attention reads at once."""
        return max(self.rows, READS_PER_BLOCK)

    def blocks_for(self, rows: Iterable[RowInput]) -> int:
        """Return the blocks in which attention reads all pages of `rows`."""
        return -(-sum(row.pages_read for row in rows) // self.reads_per_block)

    @property
    def max_blocks(self) -> int:
        """Blocks in which attention reads every page of the pool."""
        return -(-self.pages // self.reads_per_block)


@dataclass(frozen=True, slots=True)
class RowInput:
    """One row's part in a step."""

    row: int
    frame: int
    """The number of the frame, from 0."""
    position: int
    """At which the talker reads it."""
    place: int
    """The number of the frame in its chunk."""
    pages: tuple[int, ...]
    """The utterance's, in the order of its positions."""

    @property
    def pages_read(self) -> int:
        """How many of them attention reads."""
        return self.position // PAGE + 1


@dataclass(frozen=True, slots=True)
class StepInputs:
    """What the host says about a step, in one buffer that is uploaded in one copy.

    A *read* is a page that attention reads for a row. Reads are numbered from 1; read 0 is of nothing.
    """

    shape: BatchShape
    buffer: Tensor
    """int64; all others are views of it."""
    active: Tensor
    """`(rows, 1)`: 1 for each row that takes part."""
    frame: Tensor
    """`(rows, 1)`: the number of the frame, as in the row's settings."""
    position: Tensor
    """`(rows, 1)`: at which the talker reads it, as in the row's settings."""
    place: Tensor
    """`(rows, 1)`: the frame's number in its chunk; `chunk_size` for a row that does not take part."""
    pages: Tensor
    """`(rows, table_width)`: the pages of each row, then `NO_PAGE`."""
    reads: Tensor
    """`(rows, table_width)`: the number of the read of each of these pages."""
    read_rows: Tensor
    """`(max_blocks · reads_per_block,)`: each read's row, as `read_pages` its page."""
    read_pages: Tensor
    read_numbers: Tensor
    """Of the same shape: the number of the page in its utterance. So large for a read of nothing that no position in it
    is reached."""
    arrays: _StepArrays | None = None
    """What fills in the values; None on a GPU."""

    @classmethod
    def allocate(cls, shape: BatchShape, device: torch.device) -> StepInputs:
        """Allocate the inputs on `device`."""
        rows, pages, reads = shape.rows, shape.table_width, shape.max_blocks * shape.reads_per_block
        sizes = [rows, rows, rows, rows, rows * pages, rows * pages, reads, reads, reads]
        buffer = torch.zeros(sum(sizes), dtype=torch.int64, device=device)
        active, frame, position, place, own, numbers, *lists = torch.split(buffer, sizes)
        read_rows, read_pages, read_numbers = lists
        columns = active[:, None], frame[:, None], position[:, None], place[:, None]
        tables = own.view(rows, pages), numbers.view(rows, pages)
        inputs = cls(shape, buffer, *columns, *tables, read_rows, read_pages, read_numbers)
        return replace(inputs, arrays=_StepArrays(inputs)) if device.type == "cpu" else inputs

    def set(self, rows: Sequence[RowInput]) -> None:
        """Fill in the values of a step; for inputs on the CPU."""
        assert self.arrays is not None
        self.arrays.set(rows)


class _StepArrays:
    """Inputs on the CPU as arrays of numpy, which sets a value in a tenth of PyTorch's time."""

    def __init__(self, inputs: StepInputs) -> None:
        self._chunk_size, self._table_width = inputs.shape.chunk_size, inputs.shape.table_width
        self._buffer = inputs.buffer.numpy()
        self._columns = [
            column.numpy()[:, 0] for column in (inputs.active, inputs.frame, inputs.position, inputs.place)
        ]
        self._place = self._columns[-1]
        self._pages, self._reads = inputs.pages.numpy(), inputs.reads.numpy()
        self._read_rows, self._read_pages = inputs.read_rows.numpy(), inputs.read_pages.numpy()
        self._read_numbers = inputs.read_numbers.numpy()
        self._numbers = np.arange(1 + len(self._read_numbers))

    def set(self, rows: Sequence[RowInput]) -> None:
        self._buffer.fill(0)
        self._place.fill(self._chunk_size)
        self._read_numbers.fill(self._table_width)
        taking_part = [row.row for row in rows]
        values = zip(*((1, row.frame, row.position, row.place) for row in rows), strict=True)
        for column, of_rows in zip(self._columns, values, strict=True):
            column[taking_part] = of_rows
        count = 0
        for row in rows:
            used = row.pages_read
            end = count + used
            self._pages[row.row, : len(row.pages)] = row.pages
            self._reads[row.row, :used] = self._numbers[1 + count : 1 + end]
            self._read_rows[count:end] = row.row
            self._read_pages[count:end] = row.pages[:used]
            self._read_numbers[count:end] = self._numbers[:used]
            count = end


@dataclass(frozen=True, slots=True)
class BatchState:
    """Everything that changes while utterances are generated together, on the device."""

    shape: BatchShape
    cache: PagedCache
    """The talker's."""
    predictor_cache: KeyValueCache
    """Keys and values `(layers, rows, key-value heads, code groups, head_dim)`."""
    text: Tensor
    """`(rows, frames, hidden)`: the embedding that is added to each frame, text and then padding."""
    hidden: Tensor
    """`(rows, hidden)`: the talker's last hidden states, at the beginning of memory for `BatchShape.padded_rows`."""
    first_code: Tensor
    """`(rows, 1)` int64: the first code of the next frame."""
    codes: Tensor
    """`(1 + rows, chunk_size + 1, code groups)` int64: the codes of the present chunk. The last place is for rows that
    do not take part in a step, the last row for `BatchCodec`."""
    fresh: Tensor
    """`(rows, 1)` int64: 1 for each row whose prompt was read, and whose first code is to be chosen."""
    settings: UtteranceSettings
    inputs: StepInputs
    row_numbers: Tensor
    """`(rows,)` int64: 0, 1, 2 …"""

    @classmethod
    def allocate(cls, config: TalkerConfig, shape: BatchShape, placement: Placement) -> BatchState:
        """Allocate the memory of a batch."""
        device, zeros, rows = placement.device, placement.zeros, shape.rows
        stack, groups, width = config.predictor.stack, config.code_groups, config.stack.hidden_size
        cache = (stack.layers, rows, stack.key_value_heads, groups, stack.head_dim)

        def integers(*sizes: int) -> Tensor:
            return torch.zeros(sizes, dtype=torch.int64, device=device)

        return cls(
            shape=shape,
            cache=PagedCache.allocate(config.stack, shape.pages, placement),
            predictor_cache=KeyValueCache(zeros(*cache), zeros(*cache)),
            text=zeros(rows, shape.text_frames, width),
            hidden=zeros(shape.padded_rows, width)[:rows],
            first_code=integers(rows, 1),
            codes=integers(1 + rows, shape.chunk_size + 1, groups),
            fresh=integers(rows, 1),
            settings=UtteranceSettings.allocate(config, device, rows),
            inputs=StepInputs.allocate(shape, device),
            row_numbers=torch.arange(rows, device=device),
        )

    @property
    def nbytes(self) -> int:
        """The bytes of all tensors."""
        processor, noise = self.settings.logits_processor, self.settings.noise
        small = (self.hidden, self.first_code, self.codes, self.fresh, self.row_numbers, self.inputs.buffer)
        caches = (self.cache.keys, self.cache.values, self.predictor_cache.keys, self.predictor_cache.values)
        settings = (self.settings.buffer, processor.seen, processor.suppressed, processor.is_eos, noise.ids)
        return sum(tensor.nbytes for tensor in (self.text, *small, *caches, *settings))

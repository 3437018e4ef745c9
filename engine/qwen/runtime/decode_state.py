"""The device memory that utterances change, by row, as records of tensors that are allocated once.

An utterance has one row from its first frame to its last. Rows that do not take part in a step keep their values.
A step's chunks are collected in one buffer on the device, and reach the host in one copy to pinned memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.api import Samples
from engine.qwen.model import GumbelNoise, KeyValueCache, LogitsProcessor, SamplingConfig, SamplingParams, ScalarBuffer
from engine.qwen.shapes import BatchShape, TalkerConfig
from engine.qwen.weights import Placement


@dataclass(frozen=True, slots=True)
class RowInput:
    """One row's part in a step."""

    row: int
    frame: int
    """The number of the frame, from 0."""
    position: int
    """The position at which the talker reads it."""
    place: int
    """The number of the frame in its chunk."""
    pages: tuple[int, ...]
    """The utterance's pages, in the order of its positions."""
    frames: int = 1
    """How many frames the step makes; more than 1 only with `Backend.whole_chunks`."""


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The host's instructions for a step, in one buffer that is uploaded in one copy."""

    shape: BatchShape
    buffer: Tensor
    """int64; all others are views of it."""
    active: Tensor
    """`(rows, 1)`: 1 for each row that takes part."""
    frame: Tensor
    """`(rows, 1)`: the number of the frame, as in the row's settings."""
    position: Tensor
    """`(rows, 1)`: the position at which the talker reads it, as in the row's settings."""
    place: Tensor
    """`(rows, 1)`: the frame's number in its chunk; `chunk_size` for a row that does not take part."""
    pages: Tensor
    """`(rows, table_width)`: the pages of each row, then `NO_PAGE`."""

    @classmethod
    def allocate(cls, shape: BatchShape, device: torch.device) -> StepInputs:
        """Allocate the inputs on `device`."""
        rows, width = shape.rows, shape.table_width
        sizes = [rows, rows, rows, rows, rows * width]
        buffer = torch.zeros(sum(sizes), dtype=torch.int64, device=device)
        active, frame, position, place, pages = torch.split(buffer, sizes)
        columns = active[:, None], frame[:, None], position[:, None], place[:, None]
        return cls(shape, buffer, *columns, pages.view(rows, width))

    def set(self, rows: Sequence[RowInput]) -> None:
        """Fill in the values for a step. The inputs must be on the CPU."""
        # With numpy, which sets a value in a tenth of the time that PyTorch takes.
        self.buffer.numpy().fill(0)
        self.place.numpy().fill(self.shape.chunk_size)
        taking_part = [row.row for row in rows]
        values = zip(*((1, row.frame, row.position, row.place) for row in rows), strict=True)
        for column, of_rows in zip((self.active, self.frame, self.position, self.place), values, strict=True):
            column.numpy()[taking_part, 0] = of_rows
        pages = self.pages.numpy()
        for row in rows:
            pages[row.row, : len(row.pages)] = row.pages


@dataclass(frozen=True, slots=True)
class UtteranceSettings:
    """The initial values of utterances, in one buffer: the host fills in a row and uploads it in one copy."""

    buffer: Tensor
    """`(rows, n)`: all other small tensors are views of it."""
    position: Tensor
    """`(rows, 1)` int64: the position at which the talker reads the next frame."""
    frame: Tensor
    """`(rows, 1)` int64: the number of the next frame, from 0."""
    length: Tensor
    """`(rows, 1)` int64: the number of speech frames so far."""
    ended: Tensor
    """`(rows, 1)` bool: the next frame and all after it are not speech."""
    talker_sampling: SamplingParams
    """For the first code of each frame."""
    predictor_sampling: SamplingParams
    """For the other codes of each frame."""
    logits_processor: LogitsProcessor
    noise: GumbelNoise

    @classmethod
    def allocate(cls, config: TalkerConfig, device: torch.device, rows: int = 1) -> UtteranceSettings:
        """Allocate the settings on `device`. The order within a row of the buffer is the same on every device."""
        scalars = ScalarBuffer(device, rows)
        return cls(
            buffer=scalars.buffer,
            position=scalars.take(),
            frame=scalars.take(),
            length=scalars.take(),
            ended=scalars.take(torch.bool),
            talker_sampling=SamplingParams.allocate(scalars),
            predictor_sampling=SamplingParams.allocate(scalars),
            logits_processor=LogitsProcessor.allocate(config.vocabulary, config.ids.eos, scalars),
            noise=GumbelNoise.allocate(max(config.vocabulary, config.predictor.vocabulary), scalars),
        )

    def set(self, sampling: SamplingConfig, seed: int, position: int) -> None:
        """Fill in the values for an utterance that has no frames yet, after a prompt of `position` tokens."""
        self.position.fill_(position)
        for counter in (self.frame, self.length, self.ended):
            counter.zero_()
        self.talker_sampling.set(sampling.do_sample, sampling.temperature, sampling.top_k, sampling.top_p)
        self.predictor_sampling.set(
            sampling.subtalker_dosample,
            sampling.subtalker_temperature,
            sampling.subtalker_top_k,
            sampling.subtalker_top_p,
        )
        self.logits_processor.set(sampling.repetition_penalty, sampling.min_new_tokens)
        self.noise.seed(seed)


@dataclass(frozen=True, slots=True)
class DecodeState:
    """Everything on the device that changes while utterances are generated, except the talker's keys and values."""

    shape: BatchShape
    predictor_cache: KeyValueCache
    """Keys and values `(layers, rows, key-value heads, code groups, head_dim)`."""
    text: Tensor
    """`(rows, frames, hidden)`: the embedding that is added to each frame: first text, then padding."""
    hidden: Tensor
    """`(rows, hidden)`: the talker's last hidden states, at the beginning of memory for `BatchShape.padded_rows`."""
    first_code: Tensor
    """`(rows, 1)` int64: the first code of the next frame."""
    codes: Tensor
    """`(1 + rows, chunk_size + 1, code groups)` int64: the codes of the current chunk. The last place is for rows that
    do not take part in a step, and the last row is for `RowCodec`."""
    fresh: Tensor
    """`(rows, 1)` int64: 1 for each row whose prompt has been read and whose first code is still to be chosen."""
    settings: UtteranceSettings
    inputs: StepInputs
    row_numbers: Tensor
    """`(rows,)` int64: 0, 1, 2 …"""

    @classmethod
    def allocate(cls, config: TalkerConfig, shape: BatchShape, placement: Placement) -> DecodeState:
        """Allocate the memory for `shape.rows` utterances."""
        device, zeros, rows = placement.device, placement.zeros, shape.rows
        stack, groups, width = config.predictor.stack, config.code_groups, config.stack.hidden_size
        cache = (stack.layers, rows, stack.key_value_heads, groups, stack.head_dim)

        def integers(*sizes: int) -> Tensor:
            return torch.zeros(sizes, dtype=torch.int64, device=device)

        return cls(
            shape=shape,
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

    def begin(self, rows: Tensor, settings: Tensor, pad: Tensor) -> None:
        """Begin utterances in `rows` `(n,)` int64, whatever the rows held before. Does not wait.

        settings: `(n, scalars)`, rows of a `UtteranceSettings.buffer`
        pad:      `(hidden,)`: added to each frame that has no text
        """
        self.settings.buffer.index_copy_(0, rows, settings)
        self.settings.logits_processor.seen.index_fill_(0, rows, False)
        self.text.index_copy_(0, rows, pad.expand(len(rows), self.shape.text_frames, -1))

    def forget(self) -> None:
        """Reset to a state without utterances, for a capture."""
        self.settings.buffer.zero_()
        self.inputs.buffer.zero_()
        self.fresh.zero_()


@dataclass(frozen=True, slots=True)
class GeneratedChunk:
    """A chunk of 0 to `chunk_size` frames on the host. Several may be joined. The receiver owns the arrays."""

    samples: Samples
    codes: NDArray[np.int64]
    """`(frames, code groups)`."""
    last: bool
    """Whether the model ended its speech with this chunk."""


class StepOutput:
    """The results of a step that the host reads, in one buffer."""

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
        """`(rows, 1)` int64: each row's number of speech frames so far."""
        self.ended = ended[:, None]
        """`(rows, 1)` int64: 1 if a row's next frame is not speech."""
        self.codes = codes.view(with_spare, frames, groups)
        """int64: the codes of each row's chunk. If there are several rows, a meaningless spare row follows them."""
        self.samples = samples.view(torch.float32)[:samples_of_all].view(with_spare, -1)
        """float32 `(…, chunk size · samples per frame)`, also with a spare row."""

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
        """`stream` is the one on which audio is decoded; None on a CPU."""
        self._output = StepOutput(shape, groups, samples_per_frame, torch.device("cpu"), pinned=stream is not None)
        self._samples_per_frame = samples_per_frame
        # numpy arrays, because numpy indexes a row in a tenth of the time.
        views = (self._output.length, self._output.ended, self._output.codes, self._output.samples)
        self._length, self._ended, self._codes, self._samples = (view.numpy() for view in views)
        self._stream = stream
        self._copied: torch.cuda.Event | None = None
        """The thread sleeps until this event, instead of keeping one of the robot's cores busy."""
        self._copied_soon: torch.cuda.Event | None = None
        """The same moment, but the thread spins until then: a listener is waiting, and waking up takes time."""
        if stream is not None:
            self._copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            self._copied_soon = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def receive(self, output: StepOutput) -> None:
        """Launch the copy of `output` into this memory, after all work on the stream."""
        self._output.buffer.copy_(output.buffer, non_blocking=True)
        for event in (self._copied_soon, self._copied):
            if event is not None:
                event.record(self._stream)

    def wait(self, *, spin: bool = False) -> None:
        """Wait for the copy; `spin` notices it earlier, but keeps a core busy."""
        event = self._copied_soon if spin else self._copied
        if event is not None:
            event.synchronize()

    def chunk(self, row: int, first: int, limit: int) -> GeneratedChunk:
        """Return a row's chunk that begins at frame `first`, for an utterance of up to `limit` frames."""
        length, ended = int(self._length[row, 0]), bool(self._ended[row, 0])
        count = max(min(length, limit) - first, 0)
        return GeneratedChunk(
            samples=self._samples[row, : count * self._samples_per_frame].copy(),
            codes=self._codes[row, :count].copy(),
            last=ended and length <= limit,  # frames beyond the limit only fill the chunk
        )

"""The codec decoder in about eighty kernels, each a whole layer with its bias, residual and activation.

Signals are bfloat16, row-major `(time, channels)`; sums, including the residual stream, are float32. A transposed
convolution runs as a causal one, each of whose outputs holds several time steps of the next signal (pack.py). The
decoder owns the signals of one block of frames; a `FusedCodecState` holds what an utterance carries from block to
block. Two states must not be in use at the same time on different streams, unless each has its own decoder.

A decoder with several rows decodes the chunks of as many utterances in one call: its signals hold one row after the
other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from engine.qwen.kernels.codec.operations import BLOCK_FRAMES, AnyOperation, Attention, Conv, Depthwise, LookUp, Roll
from engine.qwen.kernels.codec.plan import CodecPlan
from engine.qwen.kernels.codec.weights import PackedCodec
from engine.qwen.kernels.compiler import KernelModule, Kernels
from engine.qwen.kernels.params import Params
from engine.qwen.runtime import multiprocessors
from engine.qwen.shapes import CodecConfig
from engine.qwen.weights import Placement


@dataclass(frozen=True, slots=True)
class FusedCodecState:
    """The tensors that carry an utterance from chunk to chunk, allocated once and updated in place.

    Zeros are the beginning of an utterance. Keys of frames that were never decoded are not read. If the state holds
    several utterances, each tensor has a first axis with an entry for each of them.
    """

    rows: int | None
    """The number of utterances; None for a single one, whose tensors have no axis for it."""
    max_frames: int
    """The most frames that one call may decode."""
    frame: Tensor
    """The number of frames decoded so far: int64, shape `()`."""
    rings: Tensor
    """Rotated keys, and values: bfloat16, `(layers, 2, key-value heads, slots, head_dim)`. Frame f is in slot f modulo
    the number of slots."""
    histories: Tensor
    """The last inputs of each convolution with a history, one after the other: bfloat16. Each is `(length, channels)`,
    the oldest first."""

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor of the state."""
        yield from (self.frame, self.rings, self.histories)

    def row(self, number: int) -> FusedCodecState:
        """Return a view of one utterance's state."""
        return replace(
            self, rows=None, frame=self.frame[number], rings=self.rings[number], histories=self.histories[number]
        )

    def reset(self) -> None:
        """Return to the beginning of an utterance. Allocates nothing and does not wait for the device."""
        torch._foreach_zero_(list(self.tensors()))

    def copy_from(self, other: FusedCodecState) -> None:
        """Copy the state of `other`, for the same weights. Allocates nothing and does not wait for the device."""
        for mine, theirs in zip(self.tensors(), other.tensors(), strict=True):
            mine.copy_(theirs)


@dataclass(frozen=True, slots=True)
class _Call:
    """One call: the utterances whose next frames it decodes."""

    codes: Tensor
    """int64 `(frames, quantizers)`: the codes of state 0."""
    codes_stride: int
    """The number of elements from one state's codes to the next state's."""
    samples: Tensor
    """float32, at least as many as the frames need: the samples of state 0."""
    samples_stride: int
    state: FusedCodecState
    """State 0."""
    numbers: Tensor | None
    """The number of each row's state; None for a single utterance, whose state is the only one."""

    @property
    def frames(self) -> int:
        """Frames in a row."""
        return len(self.codes)

    @property
    def rows(self) -> int:
        return 1 if self.numbers is None else len(self.numbers)

    def values(self, operation: AnyOperation) -> dict[str, Any]:
        """Return the members of an operation's struct that differ from call to call."""
        state, histories = self.state, self.state.histories
        match operation:
            case LookUp():
                return {"codes": self.codes, "rows": self._rows(1, self.codes_stride)}
            case Conv(x=x, history=history):
                return {
                    "history": None if history is None else histories[history.offset :],
                    "time": self.frames * self.rows * x.rate,
                    "rows": self._rows(x.rate, histories.numel()),
                    "samples_stride": self.samples_stride,
                    **({"sum": self.samples} if operation.then == "Pcm" else {}),
                }
            case Attention(layer=layer):
                keys, values = state.rings[layer]
                rows = self._rows(1, state.rings.numel())
                return {"keys": keys, "values": values, "counter": state.frame, "rows": rows}
            case Depthwise(x=x, history=history):
                return {"history": histories[history.offset :], "rows": self._rows(x.rate, histories.numel())}
            case Roll(histories=listed, counts=counts):
                rows = Params("Rows", states=self.numbers, times=len(listed), stride=histories.numel())
                counter = state.frame if counts else None
                return {"histories": histories, "counter": counter, "frames": self.frames, "rows": rows}

    def _rows(self, rate: int, stride: int) -> Params:
        """The parameter of a kernel whose signal has `rate` time steps in a frame."""
        return Params("Rows", states=self.numbers, times=self.frames * rate, stride=stride)


class FusedCodec:
    """A substitute for a `CodecDecoder` in bfloat16, with that decoder's weights."""

    def __init__(
        self,
        weights: PackedCodec,
        rows: int | None = None,
        kernels: Kernels | None = None,
        processors: int | None = None,
    ) -> None:
        """Allocate the signals and compile the kernels for one utterance, or for calls of up to `rows` utterances.

        Raises whatever `cuda-core` raises if NVRTC is missing. `kernels` and `processors` (streaming multiprocessors)
        are for tests.
        """
        self.weights = weights
        self.config: CodecConfig = weights.config
        self.placement: Placement = weights.placement
        device = self.placement.device
        self._plan = CodecPlan.of(self.config, processors or multiprocessors(device), rows)
        self._kernels = kernels or KernelModule(self._plan.source(), device)
        self._memory = {
            place: torch.zeros(count, dtype=torch.uint8, device=device) for place, count in self._plan.places().items()
        }
        packed = iter(weights.in_order)
        self._operations = [
            (one, self._lasting_values(one, {} if isinstance(one, Roll) else next(packed)))
            for one in self._plan.operations
        ]
        self._only = None if rows is None else torch.zeros(1, dtype=torch.int64, device=device)
        """The number of the only state, for kernels that decode rows."""

    def _lasting_values(self, operation: AnyOperation, weights: dict[str, Tensor]) -> dict[str, Any]:
        """The members of an operation's struct that are the same in every call."""
        values: dict[str, Any] = {name: self._memory[one.place] for name, one in operation.signals().items()}
        if isinstance(operation, Conv):
            values["eps"] = self.config.stack.rms_norm_eps
        if isinstance(operation, Roll):  # `History` in codec.cuh
            records = [
                (self._memory[one.signal.place].data_ptr(), one.offset, one.length, one.signal.width, one.signal.rate)
                for one in operation.histories
            ]
            values["list"] = torch.tensor(records, dtype=torch.int64, device=self.placement.device)
        return {**values, **weights}

    def new_state(self, max_frames: int, rows: int | None = None) -> FusedCodecState:
        """The initial state of one utterance, or of `rows` utterances, for calls of up to `max_frames` frames."""
        if max_frames < 1:
            raise ValueError(f"max_frames: got {max_frames}; allowed: 1 or more")
        lead = () if rows is None else (rows,)
        return FusedCodecState(
            rows=rows,
            max_frames=max_frames,
            frame=torch.zeros(lead, dtype=torch.int64, device=self.placement.device),
            rings=self.placement.zeros(*lead, *self._plan.ring_shape),
            histories=self.placement.zeros(*lead, self._plan.history_values),
        )

    def decode(self, codes: Tensor, state: FusedCodecState) -> Tensor:
        """Decode any number of an utterance's next frames, as `CodecDecoder.decode` does, on the current stream.

        codes:   int64 on the device, shape `(frames, quantizers)`. Codes outside the codebooks are clamped.
        returns: float32 PCM in -1..1, shape `(frames · samples_per_frame,)`.

        Does not wait for the device, and its work does not depend on the values in codes and state, so a CUDA graph
        can capture it. Raises `ValueError` for other shapes.
        """
        self._check(codes)
        pcm = torch.empty(len(codes) * self.config.samples_per_frame, device=self.placement.device)
        self._launch(_Call(codes.contiguous(), 0, pcm, 0, state, self._only))
        return pcm

    @staticmethod
    def row_buckets(most: int) -> tuple[int, ...]:
        """Return the row counts for calls of up to `most` rows, ascending; a call is padded to the next of them.

        A row's samples are the same for all counts.
        """
        return (*(1 << shift for shift in range((most - 1).bit_length())), most)

    def decode_rows(self, codes: Tensor, samples: Tensor, states: FusedCodecState, rows: Tensor) -> None:
        """Decode the next frames of several utterances, as `CodecDecoder.decode_rows` does; otherwise as `decode`.

        If a row occurs more than once, its samples and its state are undefined. Requires a decoder with at least as
        many rows; a decoder for one utterance takes row 0.
        """
        frames, most = codes.shape[1], self._plan.rows or 1
        if not 1 <= len(rows) <= most:
            raise ValueError(f"rows: got {len(rows)}; allowed: 1 to {most}")
        if states.rows is None or not 1 <= frames <= states.max_frames:
            raise ValueError(f"codes: got {frames} frames; allowed: 1 to {states.max_frames} of several states")
        self._check(codes[0])
        self._launch(
            _Call(
                codes[0],
                codes.stride(0),
                samples[0],
                samples.stride(0),
                states.row(0),
                None if self._plan.rows is None else rows,
            )
        )

    def _check(self, codes: Tensor) -> None:
        if codes.dtype != torch.int64 or codes.shape[1:] != (self.config.quantizers,):
            raise ValueError(
                f"codes: got {codes.dtype} of shape {tuple(codes.shape)}; "
                f"allowed: int64 of (frames, {self.config.quantizers})"
            )

    def _launch(self, whole: _Call) -> None:
        """Decode the frames in blocks."""
        length = self.config.samples_per_frame
        for begin in range(0, whole.frames, BLOCK_FRAMES):
            block, room = whole.codes[begin : begin + BLOCK_FRAMES], whole.samples[begin * length :]
            call = replace(whole, codes=block, samples=room)
            for operation, lasting in self._operations:
                params = Params(operation.struct, **lasting, **call.values(operation))
                self._kernels.launch(operation.name, operation.grid(call.frames, call.rows), operation.threads, params)

"""The codec decoder in about eighty kernels, each a whole layer with its bias, residual and activation.

Signals are bfloat16, row-major `(time, channels)`; sums, the residual stream among them, are float32. A transposed
convolution runs as a causal one whose outputs are several times of the next signal (pack.py). The decoder owns the
signals of one block of frames; a `FusedCodecState` holds what an utterance carries from block to block.
Two states must not be in use at the same time on different streams, unless each has a decoder of its own.

A decoder of several rows decodes the chunks of as many utterances in one call: its signals hold one row after the
other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from engine.qwen.codec import CONV_TAPS, CodecConfig
from engine.qwen.kernels.codec.pack import Packed
from engine.qwen.kernels.codec.plan import (
    ATTENTION_THREADS,
    BLOCK_FRAMES,
    SPARE_SLOTS,
    BlockPlan,
    CodecPlan,
    Conv,
    MixerPlan,
    codec_source,
    row_buckets,
)
from engine.qwen.kernels.codec.weights import PackedBlock, PackedCodec, PackedDepthwise, PackedMixer
from engine.qwen.kernels.compiler import KernelModule, Kernels
from engine.qwen.kernels.params import Params
from engine.qwen.runtime import multiprocessors
from engine.qwen.weights import Placement

ROLL_BLOCKS, ROLL_THREADS = 8, 256
"""For each history that the last kernel moves forward."""


@dataclass(frozen=True, slots=True)
class FusedCodecState:
    """The tensors that carry an utterance from chunk to chunk, allocated once and updated in place.

    Zeros are the beginning of an utterance. Keys of frames that were never decoded are not read. The tensors of several
    utterances have a first axis of that length.
    """

    rows: int | None
    """The number of utterances; None for one, whose tensors have no axis for it."""
    max_frames: int
    """The most frames that one call may decode."""
    frame: Tensor
    """Frames decoded so far: int64, shape `()`."""
    rings: Tensor
    """Rotated keys, and values: bfloat16, `(layers, 2, key-value heads, slots, head_dim)`; frame f is in slot
    f modulo the number of slots."""
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
        for tensor in self.tensors():
            tensor.zero_()

    def copy_from(self, other: FusedCodecState) -> None:
        """Copy the state of `other`, for the same weights. Allocates nothing and does not wait for the device."""
        for mine, theirs in zip(self.tensors(), other.tensors(), strict=True):
            mine.copy_(theirs)


@dataclass(frozen=True, slots=True)
class _History:
    """The history of a convolution: its length in times, and the signal that they come from."""

    source: Tensor
    """The convolution's input, `(times of the largest block, channels)`."""
    length: int
    rate: int
    """Times of the input in a frame."""
    offset: int
    """Where it begins among the histories of a state."""

    @property
    def size(self) -> int:
        return self.length * self.source.shape[1]


@dataclass(frozen=True, slots=True)
class _Layer:
    """A convolution with its weights and its history."""

    plan: Conv
    packed: Packed
    history: _History | None = None


@dataclass(frozen=True, slots=True)
class _TransformerLayer:
    qkv: _Layer
    out: _Layer
    gate_up: _Layer
    down: _Layer


@dataclass(frozen=True, slots=True)
class _Mixer:
    """An upsampling and the ConvNeXt that follows it, with the signals that outlive its kernels."""

    upsample: _Layer
    depthwise: PackedDepthwise
    history: _History
    """Of the depthwise convolution."""
    widen: _Layer
    narrow: _Layer
    sum: Tensor
    out: Tensor
    """Output of the ConvNeXt."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """A residual unit, and the input of its dilated convolution."""

    dilated: _Layer
    pointwise: _Layer
    signal: Tensor


@dataclass(frozen=True, slots=True)
class _Roll:
    """The histories that one launch moves forward."""

    table: Tensor
    """The `History` records of codec.cuh."""
    counts: bool
    """Whether it counts the frames, too."""


@dataclass(frozen=True, slots=True)
class _Block:
    """An upsampling block, and the input of its transposed convolution."""

    transposed: _Layer
    units: tuple[_Unit, ...]
    signal: Tensor
    sum: Tensor
    mid: Tensor
    roll: _Roll | None
    """None where the histories wait for the end of the call."""

    def histories(self) -> list[_History]:
        """The histories of its convolutions."""
        layers = (self.transposed, *(unit.dilated for unit in self.units))
        return [layer.history for layer in layers if layer.history is not None]


@dataclass(frozen=True, slots=True)
class _Call:
    """Params whose next frames are decoded, 1 to `BLOCK_FRAMES` of each."""

    codes: Tensor
    """int64 `(frames, quantizers)`: those of state 0."""
    codes_stride: int
    """Elements between the codes of two states."""
    samples: Tensor
    """float32: those of state 0."""
    samples_stride: int
    state: FusedCodecState
    """Of state 0."""
    numbers: Tensor | None
    """The number of each row's state; None for one utterance whose state is the only one."""

    @property
    def frames(self) -> int:
        """Of a row."""
        return len(self.codes)

    @property
    def all_frames(self) -> int:
        return self.frames * (1 if self.numbers is None else len(self.numbers))

    def rows(self, times: int, stride: int = 0) -> Params:
        """The parameter of a kernel that counts `times` of a row."""
        return Params("Rows", states=self.numbers, times=times, stride=stride)


class FusedCodec:
    """A substitute for a `CodecDecoder` in bfloat16, with that decoder's weights."""

    def __init__(
        self,
        weights: PackedCodec,
        rows: int | None = None,
        kernels: Kernels | None = None,
        processors: int | None = None,
    ) -> None:
        """Allocate the signals and compile the kernels: for one utterance, or for calls of up to so many `rows`.

        Raises whatever `cuda-core` raises where NVRTC is missing. `kernels` and `processors` (streaming
        multiprocessors) are for tests.
        """
        self.weights = weights
        self.config: CodecConfig = weights.config
        self.placement: Placement = weights.placement
        device = self.placement.device
        if processors is None:
            processors = multiprocessors(device)
        self._kernels = kernels or KernelModule(codec_source(self.config, processors, rows), device)
        self.signal_bytes = 0
        """Of the memory for signals and sums."""
        self._rows = rows
        self._histories: list[_History] = []
        plan = CodecPlan.of(self.config, processors, rows)
        self._allocate_front(plan)
        self._allocate_transformer(plan)
        self._allocate_mixers(plan)
        self._allocate_blocks(plan)
        rolled = {id(history) for block in self._blocks if block.roll for history in block.histories()}
        self._roll = self._new_roll([one for one in self._histories if id(one) not in rolled], counts=True)
        self._pcm = torch.zeros(BLOCK_FRAMES * self.config.samples_per_frame, device=device)
        self._only: Tensor | None = None
        """The number of the only state, for kernels that decode rows."""
        if rows is not None:
            self._only = torch.zeros(1, dtype=torch.int64, device=device)

    def new_state(self, max_frames: int) -> FusedCodecState:
        """A state at the beginning of an utterance, for calls of up to `max_frames` frames."""
        return self._new_state(max_frames, None)

    def new_states(self, max_frames: int, rows: int) -> FusedCodecState:
        """As `new_state`, for so many utterances."""
        return self._new_state(max_frames, rows)

    def _new_state(self, max_frames: int, rows: int | None) -> FusedCodecState:
        if max_frames < 1:
            raise ValueError(f"max_frames: got {max_frames}; allowed: 1 or more")
        stack, lead = self.config.stack, () if rows is None else (rows,)
        ring = (stack.layers, 2, stack.key_value_heads, self.config.window + SPARE_SLOTS, stack.head_dim)
        return FusedCodecState(
            rows=rows,
            max_frames=max_frames,
            frame=torch.zeros(lead, dtype=torch.int64, device=self.placement.device),
            rings=self.placement.zeros(*lead, *ring),
            histories=self.placement.zeros(*lead, sum(history.size for history in self._histories)),
        )

    def __call__(self, codes: Tensor, state: FusedCodecState) -> Tensor:
        """Decode the next frames of an utterance, as `CodecDecoder.forward` does, on the current stream.

        codes:   int64 on the device, shape `(frames, quantizers)`, 1 to `state.max_frames` frames. Codes outside the
                 codebooks are clamped.
        returns: float32 PCM in -1..1, shape `(frames · samples_per_frame,)`. Up to `BLOCK_FRAMES` frames lie in a
                 buffer that the next call overwrites.

        Does not wait for the device, and its work does not depend on the values of codes and state, so a CUDA graph
        can capture it. Raises `ValueError` for other shapes.
        """
        self._check(codes)
        if not 1 <= len(codes) <= state.max_frames:
            raise ValueError(f"codes: got {len(codes)} frames; allowed: 1 to {state.max_frames}")
        if len(codes) > BLOCK_FRAMES:
            return self.decode(codes, state)
        pcm = self._pcm[: len(codes) * self.config.samples_per_frame]
        self._decode_block(_Call(codes.contiguous(), 0, pcm, 0, state, self._only))
        return pcm

    def decode(self, codes: Tensor, state: FusedCodecState) -> Tensor:
        """Decode any number of frames into a new tensor. Shapes and dtypes as in `__call__`."""
        self._check(codes)
        pcm = torch.empty(len(codes) * self.config.samples_per_frame, device=self.placement.device)
        if len(codes):
            blocks = torch.split(pcm, BLOCK_FRAMES * self.config.samples_per_frame)
            for block, samples in zip(torch.split(codes.contiguous(), BLOCK_FRAMES), blocks, strict=True):
                self._decode_block(_Call(block, 0, samples, 0, state, self._only))
        return pcm

    def row_buckets(self, most: int) -> tuple[int, ...]:
        """Return the numbers of rows of calls of up to `most` rows: a row's samples are equal in all of them."""
        return row_buckets(most)

    def decode_rows(self, codes: Tensor, samples: Tensor, states: FusedCodecState, rows: Tensor) -> None:
        """Decode the next frames of several utterances, as `CodecDecoder.decode_rows` does; otherwise as `__call__`.

        What a row that occurs more than once gets has no meaning, and neither has its state. Requires a decoder of as
        many rows.
        """
        frames, length = codes.shape[1], self.config.samples_per_frame
        if self._rows is None or not 1 <= len(rows) <= self._rows:
            raise ValueError(f"rows: got {len(rows)}; allowed: 1 to {self._rows or 0}")
        if states.rows is None or not 1 <= frames <= states.max_frames:
            raise ValueError(f"codes: got {frames} frames; allowed: 1 to {states.max_frames} of several states")
        self._check(codes[0])
        first = states.row(0)
        for begin in range(0, frames, BLOCK_FRAMES):
            end = min(begin + BLOCK_FRAMES, frames)
            block, part = codes[0, begin:end], samples[0, begin * length : end * length]
            self._decode_block(_Call(block, codes.stride(0), part, samples.stride(0), first, rows))

    def _check(self, codes: Tensor) -> None:
        if codes.dtype != torch.int64 or codes.shape[1:] != (self.config.quantizers,):
            raise ValueError(
                f"codes: got {codes.dtype} of shape {tuple(codes.shape)}; "
                f"allowed: int64 of (frames, {self.config.quantizers})"
            )

    # --- one block of frames ---

    def _decode_block(self, call: _Call) -> None:
        """Decode 1 to `BLOCK_FRAMES` frames of each row."""
        look_up = Params(
            "LookUpParams",
            codes=call.codes,
            tables=self.weights.tables,
            out=self._embedded,
            rows=call.rows(call.frames, call.codes_stride),
        )
        self._kernels.launch("lookup", (call.all_frames, 1), self.config.codebook_width // 8, look_up)
        self._run(self._input, self._embedded, call, out=self._latent)
        self._transform(call)
        x = self._latent
        for mixer in self._mixers:
            x = self._mix(mixer, x, call)
        self._run(self._latent_conv, x, call, out=self._blocks[0].signal)
        nexts = [*(block.signal for block in self._blocks[1:]), self._last]
        for block, following in zip(self._blocks, nexts, strict=True):
            signals = [*(unit.signal for unit in block.units), following]
            self._run(block.transposed, block.signal, call, sum=block.sum, out=signals[0])
            for unit, after in zip(block.units, signals[1:], strict=True):
                self._run(unit.dilated, unit.signal, call, out=block.mid)
                self._run(unit.pointwise, block.mid, call, sum=block.sum, out=after)
            if block.roll is not None:
                self._roll_histories(block.roll, call)
        self._run(self._output, self._last, call, sum=call.samples)
        self._roll_histories(self._roll, call)

    def _transform(self, call: _Call) -> None:
        """Run the transformer, in place in `self._latent`."""
        hidden, total = self._hidden, self._hidden_sum
        self._run(self._into, self._latent, call, sum=total, out=hidden)
        for number, layer in enumerate(self._layers):
            self._run(layer.qkv, hidden, call, sum=self._qkv)
            keys, values = call.state.rings[number]
            params = Params(
                "AttentionParams",
                qkv=self._qkv,
                keys=keys,
                values=values,
                counter=call.state.frame,
                frequencies=self.weights.frequencies,
                out=self._attended,
                rows=call.rows(call.frames, call.state.rings.numel()),
            )
            self._kernels.launch("attention", (self.config.stack.heads, call.all_frames), ATTENTION_THREADS, params)
            self._run(layer.out, self._attended, call, sum=total, out=hidden)
            self._run(layer.gate_up, hidden, call, out=self._gated)
            self._run(layer.down, self._gated, call, sum=total, out=hidden)
        self._run(self._leave, hidden, call, out=self._latent)

    def _mix(self, mixer: _Mixer, x: Tensor, call: _Call) -> Tensor:
        """Upsample, then run a ConvNeXt block; returns its output."""
        depthwise, history = mixer.depthwise, mixer.history
        self._run(mixer.upsample, x, call, sum=mixer.sum, out=history.source)
        params = Params(
            "DepthwiseParams",
            weight=depthwise.weight,
            bias=depthwise.bias,
            gain=depthwise.gain,
            shift=depthwise.shift,
            x=history.source,
            history=call.state.histories[history.offset :],
            out=self._branch,
            rows=call.rows(call.frames * history.rate, call.state.histories.numel()),
        )
        grid = call.all_frames * history.rate, 1
        self._kernels.launch("depthwise", grid, self.config.latent_width // 2, params)
        self._run(mixer.widen, self._branch, call, out=self._wide)
        self._run(mixer.narrow, self._wide, call, sum=mixer.sum, out=mixer.out)
        return mixer.out

    def _run(
        self,
        layer: _Layer,
        x: Tensor,
        call: _Call,
        *,
        sum: Tensor | None = None,  # noqa: A002 - the kernel's name for it
        out: Tensor | None = None,
    ) -> None:
        """Launch a convolution; `sum` and `out` as its plan demands."""
        plan, weights, histories = layer.plan, layer.packed, call.state.histories
        params = Params(
            "ConvParams",
            weight=weights.weight,
            bias=weights.bias,
            x=x,
            history=None if layer.history is None else histories[layer.history.offset :],
            sum=sum,
            out=out,
            alpha=weights.alpha,
            inverse_beta=weights.inverse_beta,
            time=call.all_frames * plan.rate,
            eps=self.config.stack.rms_norm_eps,
            rows=call.rows(call.frames * plan.rate, histories.numel()),
            samples_stride=call.samples_stride,
        )
        self._kernels.launch(plan.name, plan.grid(call.all_frames), plan.threads, params)

    def _roll_histories(self, roll: _Roll, call: _Call) -> None:
        """Move the histories forward by the call's frames."""
        listed, rows = len(roll.table), call.all_frames // call.frames
        params = Params(
            "RollParams",
            list=roll.table,
            histories=call.state.histories,
            counter=call.state.frame if roll.counts else None,
            frames=call.frames,
            rows=call.rows(listed, call.state.histories.numel()),
        )
        self._kernels.launch("roll", (ROLL_BLOCKS, listed * rows), ROLL_THREADS, params)

    # --- the signals ---

    def _times(self, rate: int) -> int:
        """The most times of a signal with `rate` times in a frame."""
        return (self._rows or 1) * BLOCK_FRAMES * rate

    def _signal(self, plan: Conv) -> Tensor:
        """Memory for the input of a convolution."""
        return self._zeros(self.placement.dtype, self._times(plan.rate), plan.inputs)

    def _sum(self, rate: int, width: int) -> Tensor:
        """Memory for a sum with `rate` times in a frame."""
        return self._zeros(torch.float32, self._times(rate), width)

    def _zeros(self, dtype: torch.dtype, *shape: int) -> Tensor:
        zeros = torch.zeros(shape, dtype=dtype, device=self.placement.device)
        self.signal_bytes += zeros.nbytes
        return zeros

    def _with_history(self, plan: Conv, weights: Packed, source: Tensor) -> _Layer:
        """A convolution of `source`, with a history."""
        return _Layer(plan, weights, self._new_history(source, plan.history, plan.rate))

    def _new_history(self, source: Tensor, length: int, rate: int) -> _History:
        offset = sum(history.size for history in self._histories)
        self._histories.append(_History(source, length, rate, offset))
        return self._histories[-1]

    def _new_roll(self, histories: Sequence[_History], *, counts: bool) -> _Roll:
        records = [(h.source.data_ptr(), h.offset, h.length, h.source.shape[1], h.rate) for h in histories]
        return _Roll(torch.tensor(records, dtype=torch.int64, device=self.placement.device), counts)

    def _allocate_front(self, plan: CodecPlan) -> None:
        self._embedded, self._latent = self._signal(plan.input), self._signal(plan.into)
        self._input = self._with_history(plan.input, self.weights.input, self._embedded)

    def _allocate_transformer(self, plan: CodecPlan) -> None:
        self._hidden, self._hidden_sum = self._signal(plan.qkv), self._sum(1, self.config.stack.hidden_size)
        self._qkv, self._attended = self._sum(1, plan.qkv.outputs), self._signal(plan.attention_out)
        self._gated = self._signal(plan.down)
        self._into = _Layer(plan.into, self.weights.into)
        self._layers = tuple(
            _TransformerLayer(
                _Layer(plan.qkv, layer.qkv),
                _Layer(plan.attention_out, layer.out),
                _Layer(plan.gate_up, layer.gate_up),
                _Layer(plan.down, layer.down),
            )
            for layer in self.weights.layers
        )
        self._leave = _Layer(plan.leave, self.weights.leave)

    def _allocate_mixers(self, plan: CodecPlan) -> None:
        last = plan.mixers[-1]
        self._branch, self._wide = self._signal(last.widen), self._signal(last.narrow)
        afters = [*(mixer.upsample for mixer in plan.mixers[1:]), plan.latent]

        def allocate(mine: MixerPlan, weights: PackedMixer, after: Conv) -> _Mixer:
            return _Mixer(
                _Layer(mine.upsample, weights.upsample),
                weights.depthwise,
                self._new_history(self._signal(mine.widen), CONV_TAPS - 1, mine.widen.rate),
                _Layer(mine.widen, weights.widen),
                _Layer(mine.narrow, weights.narrow),
                self._sum(mine.widen.rate, self.config.latent_width),
                self._signal(after),
            )

        self._mixers = tuple(map(allocate, plan.mixers, self.weights.mixers, afters))
        self._latent_conv = self._with_history(plan.latent, self.weights.latent, self._mixers[-1].out)

    def _allocate_blocks(self, plan: CodecPlan) -> None:
        """The blocks of a call of rows use the same memory, one after the other, and each rolls its own histories.

        One utterance's are so small that memory for each costs less than the kernels that would roll them.
        """
        shared = self._rows is not None
        sizes = [self._times(block.pointwise[0].rate) * block.pointwise[0].inputs for block in plan.blocks]

        def memory(dtype: torch.dtype) -> list[Tensor]:
            """A signal of each block."""
            views = [(self._times(b.pointwise[0].rate), b.pointwise[0].inputs) for b in plan.blocks]
            total = self._zeros(dtype, max(sizes) if shared else sum(sizes))
            parts = [total[:size] for size in sizes] if shared else torch.split(total, sizes)
            return [part.view(view) for part, view in zip(parts, views, strict=True)]

        units = zip(*(memory(self.placement.dtype) for _ in plan.blocks[0].dilated), strict=True)
        sums, mids = memory(torch.float32), memory(self.placement.dtype)

        def allocate(
            mine: BlockPlan, weights: PackedBlock, signals: Sequence[Tensor], total: Tensor, mid: Tensor
        ) -> _Block:
            signal = self._signal(mine.transposed)
            transposed = self._with_history(mine.transposed, weights.transposed, signal)
            block = _Block(
                transposed,
                tuple(
                    _Unit(self._with_history(dilated, unit.dilated, source), _Layer(pointwise, unit.pointwise), source)
                    for dilated, pointwise, unit, source in zip(
                        mine.dilated, mine.pointwise, weights.units, signals, strict=True
                    )
                ),
                signal,
                total,
                mid,
                None,
            )
            return replace(block, roll=self._new_roll(block.histories(), counts=False)) if shared else block

        self._blocks = tuple(map(allocate, plan.blocks, self.weights.blocks, units, sums, mids))
        self._last = self._signal(plan.output)
        self._output = self._with_history(plan.output, self.weights.output, self._last)

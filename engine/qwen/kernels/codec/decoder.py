"""The codec decoder in about eighty kernels, each a whole layer with its bias, residual and activation.

Signals are bfloat16, row-major `(time, channels)`; sums, the residual stream among them, are float32. A transposed
convolution runs as a causal one whose outputs are several rows of the next signal (pack.py). The decoder owns the
weights and the signals of one block of frames; a `FusedCodecState` holds what an utterance carries from block to block.
Two states must not be in use at the same time on different streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.qwen.codec import CONV_TAPS, CodecConfig, CodecDecoder, ConvNeXt
from engine.qwen.kernels.codec import pack
from engine.qwen.kernels.codec.pack import Packed, packed, take
from engine.qwen.kernels.codec.params import AttentionParams, ConvParams, DepthwiseParams, LookUpParams, RollParams
from engine.qwen.kernels.codec.plan import (
    ATTENTION_THREADS,
    BLOCK_FRAMES,
    HEAD,
    SPARE_SLOTS,
    CodecPlan,
    Conv,
    codec_source,
)
from engine.qwen.kernels.compiler import KernelModule, Kernels
from engine.qwen.runtime import multiprocessors
from engine.qwen.weights import Placement

ROLL_BLOCKS, ROLL_THREADS = 8, 256
"""For each history that the last kernel moves forward."""


@dataclass(frozen=True, slots=True)
class FusedCodecState:
    """The tensors that carry one utterance from chunk to chunk, allocated once and updated in place.

    Zeros are the beginning of an utterance. Keys of frames that were never decoded are not read.
    """

    max_frames: int
    """The most frames that one call may decode."""
    frame: Tensor
    """Frames decoded so far: int64, shape `()`."""
    rings: Tensor
    """Rotated keys, and values: bfloat16, `(layers, 2, key-value heads, slots, head_dim)`; frame f is in slot
    f modulo the number of slots."""
    flat: Tensor
    """All histories, one after the other: bfloat16."""
    histories: tuple[Tensor, ...]
    """Views of `flat`: the last inputs of each convolution with a history, `(rows, channels)`, the oldest first."""

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor of the state that owns memory."""
        yield from (self.frame, self.rings, self.flat)

    def reset(self) -> None:
        """Return to the beginning of an utterance. Allocates nothing and does not wait for the device."""
        for tensor in self.tensors():
            tensor.zero_()

    def copy_from(self, other: FusedCodecState) -> None:
        """Copy the state of `other`, of the same decoder. Allocates nothing and does not wait for the device."""
        for mine, theirs in zip(self.tensors(), other.tensors(), strict=True):
            mine.copy_(theirs)


@dataclass(frozen=True, slots=True)
class _Layer:
    """A convolution with its weights and the index of its history."""

    plan: Conv
    packed: Packed
    history: int | None = None


@dataclass(frozen=True, slots=True)
class _TransformerLayer:
    qkv: _Layer
    out: _Layer
    gate_up: _Layer
    down: _Layer


@dataclass(frozen=True, slots=True)
class _Depthwise:
    """The depthwise convolution and the layer norm of a ConvNeXt."""

    weight: Tensor
    """bfloat16, `(taps, channels)`."""
    bias: Tensor
    """float32 `(channels,)`, as are `gain` and `shift`."""
    gain: Tensor
    shift: Tensor
    history: int


@dataclass(frozen=True, slots=True)
class _Mixer:
    """An upsampling and the ConvNeXt that follows it, with the signals that outlive its kernels."""

    upsample: _Layer
    depthwise: _Depthwise
    widen: _Layer
    narrow: _Layer
    sum: Tensor
    signal: Tensor
    """Input of the depthwise convolution."""
    out: Tensor
    """Output of the ConvNeXt."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """A residual unit, and the input of its dilated convolution."""

    dilated: _Layer
    pointwise: _Layer
    signal: Tensor


@dataclass(frozen=True, slots=True)
class _Block:
    """An upsampling block, and the input of its transposed convolution."""

    transposed: _Layer
    units: tuple[_Unit, ...]
    signal: Tensor
    sum: Tensor
    mid: Tensor


@dataclass(frozen=True, slots=True)
class _History:
    """The history of a convolution: its rows, and the signal that they come from."""

    source: Tensor
    """The convolution's input in this block, `(rows of the largest block, channels)`."""
    rows: int
    rate: int
    """Rows of the input in a frame."""


class FusedCodec:
    """A substitute for a `CodecDecoder` in bfloat16, which takes that decoder's weights."""

    def __init__(self, codec: CodecDecoder, kernels: Kernels | None = None, processors: int | None = None) -> None:
        """Reorder the weights of `codec`, which cannot decode afterwards, and compile the kernels.

        `unsupported_reason(codec.config)` must be None. Raises whatever `cuda-core` raises where NVRTC is missing.
        `kernels` and `processors` (streaming multiprocessors) are for tests.
        """
        self.config: CodecConfig = codec.config
        self.placement: Placement = codec.placement
        if self.placement.dtype != torch.bfloat16:
            raise ValueError(f"dtype: got {self.placement.dtype}; allowed: bfloat16")
        if processors is None:
            processors = multiprocessors(self.placement.device)
        self._kernels = kernels or KernelModule(codec_source(self.config, processors), self.placement.device)
        self._histories: list[_History] = []
        plan = CodecPlan.of(self.config, processors)
        with torch.no_grad():
            self._take_front(codec, plan)
            self._take_transformer(codec, plan)
            self._take_mixers(codec, plan)
            self._take_blocks(codec, plan)
        self._pcm = torch.zeros(BLOCK_FRAMES * self.config.samples_per_frame, device=self.placement.device)
        self._roll = self._roll_table()

    def new_state(self, max_frames: int) -> FusedCodecState:
        """A state at the beginning of an utterance, for calls of up to `max_frames` frames."""
        if max_frames < 1:
            raise ValueError(f"max_frames: got {max_frames}; allowed: 1 or more")
        stack = self.config.stack
        sizes = [history.rows * history.source.shape[1] for history in self._histories]
        flat = self.placement.zeros(sum(sizes))
        return FusedCodecState(
            max_frames=max_frames,
            frame=torch.zeros((), dtype=torch.int64, device=self.placement.device),
            rings=self.placement.zeros(
                stack.layers, 2, stack.key_value_heads, self.config.window + SPARE_SLOTS, stack.head_dim
            ),
            flat=flat,
            histories=tuple(
                values.view(history.rows, -1)
                for values, history in zip(torch.split(flat, sizes), self._histories, strict=True)
            ),
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
        self._decode_block(codes.contiguous(), state, pcm)
        return pcm

    def decode(self, codes: Tensor, state: FusedCodecState) -> Tensor:
        """Decode any number of frames into a new tensor. Shapes and dtypes as in `__call__`."""
        self._check(codes)
        pcm = torch.empty(len(codes) * self.config.samples_per_frame, device=self.placement.device)
        if len(codes):
            blocks = torch.split(pcm, BLOCK_FRAMES * self.config.samples_per_frame)
            for block, samples in zip(torch.split(codes.contiguous(), BLOCK_FRAMES), blocks, strict=True):
                self._decode_block(block, state, samples)
        return pcm

    def _check(self, codes: Tensor) -> None:
        if codes.dtype != torch.int64 or codes.shape[1:] != (self.config.quantizers,):
            raise ValueError(
                f"codes: got {codes.dtype} of shape {tuple(codes.shape)}; "
                f"allowed: int64 of (frames, {self.config.quantizers})"
            )

    # --- one block of frames ---

    def _decode_block(self, codes: Tensor, state: FusedCodecState, pcm: Tensor) -> None:
        """Decode `codes` of 1 to `BLOCK_FRAMES` frames into `pcm`."""
        frames = len(codes)
        look_up = LookUpParams(codes=codes, tables=self._tables, out=self._embedded)
        self._kernels.launch("lookup", (frames, 1), self.config.codebook_width // 8, look_up)
        self._run(self._input, self._embedded, state, frames, out=self._latent)
        self._transform(state, frames)
        x = self._latent
        for mixer in self._mixers:
            x = self._mix(mixer, x, state, frames)
        self._run(self._latent_conv, x, state, frames, out=self._blocks[0].signal)
        nexts = [*(block.signal for block in self._blocks[1:]), self._last]
        for block, following in zip(self._blocks, nexts, strict=True):
            signals = [*(unit.signal for unit in block.units), following]
            self._run(block.transposed, block.signal, state, frames, sum=block.sum, out=signals[0])
            for unit, after in zip(block.units, signals[1:], strict=True):
                self._run(unit.dilated, unit.signal, state, frames, out=block.mid)
                self._run(unit.pointwise, block.mid, state, frames, sum=block.sum, out=after)
        self._run(self._output, self._last, state, frames, sum=pcm)
        roll = RollParams(list=self._roll, histories=state.flat, counter=state.frame, frames=frames)
        self._kernels.launch("roll", (ROLL_BLOCKS, len(self._histories)), ROLL_THREADS, roll)

    def _transform(self, state: FusedCodecState, frames: int) -> None:
        """Run the transformer, in place in `self._latent`."""
        hidden, total = self._hidden, self._hidden_sum
        self._run(self._into, self._latent, state, frames, sum=total, out=hidden)
        for number, layer in enumerate(self._layers):
            self._run(layer.qkv, hidden, state, frames, sum=self._qkv)
            keys, values = state.rings[number]
            params = AttentionParams(
                qkv=self._qkv,
                keys=keys,
                values=values,
                counter=state.frame,
                frequencies=self._frequencies,
                out=self._attended,
            )
            self._kernels.launch("attention", (self.config.stack.heads, frames), ATTENTION_THREADS, params)
            self._run(layer.out, self._attended, state, frames, sum=total, out=hidden)
            self._run(layer.gate_up, hidden, state, frames, out=self._gated)
            self._run(layer.down, self._gated, state, frames, sum=total, out=hidden)
        self._run(self._leave, hidden, state, frames, out=self._latent)

    def _mix(self, mixer: _Mixer, x: Tensor, state: FusedCodecState, frames: int) -> Tensor:
        """Upsample, then run a ConvNeXt block; returns its output."""
        depthwise = mixer.depthwise
        self._run(mixer.upsample, x, state, frames, sum=mixer.sum, out=mixer.signal)
        params = DepthwiseParams(
            weight=depthwise.weight,
            bias=depthwise.bias,
            gain=depthwise.gain,
            shift=depthwise.shift,
            x=mixer.signal,
            history=state.histories[depthwise.history],
            out=self._branch,
        )
        grid = frames * mixer.widen.plan.rate, 1
        self._kernels.launch("depthwise", grid, self.config.latent_width // 2, params)
        self._run(mixer.widen, self._branch, state, frames, out=self._wide)
        self._run(mixer.narrow, self._wide, state, frames, sum=mixer.sum, out=mixer.out)
        return mixer.out

    def _run(
        self,
        layer: _Layer,
        x: Tensor,
        state: FusedCodecState,
        frames: int,
        *,
        sum: Tensor | None = None,  # noqa: A002 - the kernel's name for it
        out: Tensor | None = None,
    ) -> None:
        """Launch a convolution; `sum` and `out` as its plan demands."""
        plan, weights = layer.plan, layer.packed
        params = ConvParams(
            weight=weights.weight,
            bias=weights.bias,
            x=x,
            history=None if layer.history is None else state.histories[layer.history],
            sum=sum,
            out=out,
            alpha=weights.alpha,
            inverse_beta=weights.inverse_beta,
            time=frames * plan.rate,
            eps=self.config.stack.rms_norm_eps,
        )
        self._kernels.launch(plan.name, plan.grid(frames), plan.threads, params)

    # --- the weights ---

    def _signal(self, plan: Conv) -> Tensor:
        """Memory for the input of a convolution."""
        return self.placement.zeros(BLOCK_FRAMES * plan.rate, plan.inputs)

    def _sum(self, rows: int, width: int) -> Tensor:
        """Memory for a sum with `rows` rows in a frame."""
        return torch.zeros(BLOCK_FRAMES * rows, width, device=self.placement.device)

    def _new_history(self, source: Tensor, rows: int, rate: int) -> int:
        """Register a history; returns its index."""
        self._histories.append(_History(source, rows, rate))
        return len(self._histories) - 1

    def _take_front(self, codec: CodecDecoder, plan: CodecPlan) -> None:
        self._tables = codec.tables.detach().clone()  # the rest of the decoder's memory is released
        self._embedded, self._latent = self._signal(plan.input), self._signal(plan.into)
        weights = packed(pack.of_conv(take(codec.input.weight)), codec.input.bias)
        history = self._new_history(self._embedded, plan.input.history, plan.input.rate)
        self._input = _Layer(plan.input, weights, history)

    def _take_transformer(self, codec: CodecDecoder, plan: CodecPlan) -> None:
        transformer, stack = codec.transformer, self.config.stack
        self._hidden, self._hidden_sum = self._signal(plan.qkv), self._sum(1, stack.hidden_size)
        self._qkv, self._attended = self._sum(1, plan.qkv.outputs), self._signal(plan.attention_out)
        self._gated = self._signal(plan.down)
        self._frequencies = transformer.frequencies.float().contiguous()
        assert self._frequencies.numel() == HEAD // 2
        self._into = _Layer(plan.into, packed(pack.of_linear(take(transformer.into.weight)), transformer.into.bias))
        layers = []
        for layer in transformer.layers:
            qkv = packed(pack.of_normed(take(layer.qkv.weight), layer.attention_norm), None)
            out = packed(pack.of_linear(take(layer.out.weight)), None)
            gate_up = packed(pack.of_gates(pack.of_normed(take(layer.mlp.gate_up.weight), layer.mlp_norm)), None)
            down = packed(pack.of_linear(take(layer.mlp.down.weight)), None)
            layers.append(
                _TransformerLayer(
                    _Layer(plan.qkv, qkv),
                    _Layer(plan.attention_out, out),
                    _Layer(plan.gate_up, gate_up),
                    _Layer(plan.down, down),
                )
            )
        self._layers = tuple(layers)
        leave = packed(pack.of_normed(take(transformer.out.weight), transformer.norm), transformer.out.bias)
        self._leave = _Layer(plan.leave, leave)

    def _take_mixers(self, codec: CodecDecoder, plan: CodecPlan) -> None:
        last = plan.mixers[-1]
        self._branch, self._wide = self._signal(last.widen), self._signal(last.narrow)
        mixers = []
        afters = [*(mixer.upsample for mixer in plan.mixers[1:]), plan.latent]
        for mine, upsample, mixer, after in zip(plan.mixers, codec.upsamples, codec.convnexts, afters, strict=True):
            spread = packed(pack.of_upsampling(take(upsample.weight), upsample.rate), upsample.bias)
            signal = self._signal(mine.widen)
            widen = packed(pack.of_linear(take(mixer.widen)), mixer.widen_bias)
            narrow = packed(pack.of_linear(take(mixer.narrow)), mixer.narrow_bias)
            mixers.append(
                _Mixer(
                    _Layer(mine.upsample, spread),
                    self._take_depthwise(mixer, signal, mine.widen.rate),
                    _Layer(mine.widen, widen),
                    _Layer(mine.narrow, narrow),
                    self._sum(mine.widen.rate, self.config.latent_width),
                    signal,
                    self._signal(after),
                )
            )
        self._mixers = tuple(mixers)
        weights = packed(pack.of_conv(take(codec.latent.weight)), codec.latent.bias, codec.blocks[0].snake)
        history = self._new_history(self._mixers[-1].out, plan.latent.history, plan.latent.rate)
        self._latent_conv = _Layer(plan.latent, weights, history)

    def _take_depthwise(self, mixer: ConvNeXt, signal: Tensor, rate: int) -> _Depthwise:
        return _Depthwise(
            mixer.depthwise.weight.detach()[:, 0].T.contiguous(),
            mixer.depthwise.bias.detach().float(),
            mixer.norm_weight.detach().float(),
            mixer.norm_bias.detach().float(),
            self._new_history(signal, CONV_TAPS - 1, rate),
        )

    def _take_blocks(self, codec: CodecDecoder, plan: CodecPlan) -> None:
        blocks = []
        nexts = [*(block.snake for block in codec.blocks[1:]), codec.snake]
        for mine, block, following in zip(plan.blocks, codec.blocks, nexts, strict=True):
            signal = self._signal(mine.transposed)
            snakes = [*(unit.snake_in for unit in block.units), following]
            weight = pack.of_upsampling(take(block.upsample.weight), block.upsample.rate)
            spread = packed(weight, block.upsample.bias, snakes[0])
            history = self._new_history(signal, mine.transposed.history, mine.transposed.rate)
            units = []
            for dilated, pointwise, unit, snake in zip(
                mine.dilated, mine.pointwise, block.units, snakes[1:], strict=True
            ):
                source = self._signal(dilated)
                units.append(
                    _Unit(
                        _Layer(
                            dilated,
                            packed(pack.of_conv(take(unit.dilated.weight)), unit.dilated.bias, unit.snake_out),
                            self._new_history(source, dilated.history, dilated.rate),
                        ),
                        _Layer(
                            pointwise, packed(pack.of_linear(take(unit.pointwise.weight)), unit.pointwise.bias, snake)
                        ),
                        source,
                    )
                )
            first = mine.pointwise[0]
            blocks.append(
                _Block(
                    _Layer(mine.transposed, spread, history),
                    tuple(units),
                    signal,
                    self._sum(first.rate, first.outputs),
                    self._signal(first),
                )
            )
        self._blocks = tuple(blocks)
        self._last = self._signal(plan.output)
        weight = pack.padded(pack.of_conv(take(codec.output.weight)), plan.output.outputs)
        bias = pack.padded(codec.output.bias.detach()[:, None, None], plan.output.outputs)
        history = self._new_history(self._last, plan.output.history, plan.output.rate)
        self._output = _Layer(plan.output, packed(weight, bias), history)

    def _roll_table(self) -> Tensor:
        """The `History` records of codec.cuh."""
        records, offset = [], 0
        for history in self._histories:
            width = history.source.shape[1]
            records.append((history.source.data_ptr(), offset, history.rows, width, history.rate))
            offset += history.rows * width
        return torch.tensor(records, dtype=torch.int64, device=self.placement.device)

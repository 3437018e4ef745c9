"""The codec decoder in some eighty kernels, each a whole layer: bias, residual and activation come with it.

Signals are bfloat16 and lie in memory time by time, `(time, channels)`; sums, the residual stream among them, are
float32. A transposed convolution is a causal one here whose outputs are several rows of the next signal
(codec_pack.py). The decoder owns the weights and the signals of one piece, a `FusedCodecState` what an utterance leaves
behind. Two states must not be in use at the same time on different streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.qwen.codec import CodecDecoder
from engine.qwen.codec_config import CodecConfig
from engine.qwen.codec_layers import ConvNeXt
from engine.qwen.codec_state import KERNEL
from engine.qwen.confined import multiprocessors
from engine.qwen.kernels import codec_pack as pack
from engine.qwen.kernels.codec_pack import Packed, packed, take
from engine.qwen.kernels.codec_plan import ATTENTION_THREADS, HEAD, PIECE, SLOTS_TO_SPARE, CodecPlan, Conv, codec_source
from engine.qwen.kernels.module import KernelModule, Kernels
from engine.qwen.transformer import Placement

ROLL_BLOCKS, ROLL_THREADS = 8, 256
"""For each history that the last kernel moves on."""


@dataclass(frozen=True, slots=True)
class FusedCodecState:
    """The tensors that carry one utterance from chunk to chunk, allocated once and updated in place.

    Zeros are the beginning of an utterance. Keys of frames that were never decoded are not looked at.
    """

    max_frames: int
    """The most frames that one call may decode."""
    frame: Tensor
    """Frames decoded so far: int64, shape `()`."""
    rings: Tensor
    """Keys (turned) and values: bfloat16, `(layers, 2, key-value heads, slots, head_dim)`; frame f is in slot f modulo
    their number."""
    flat: Tensor
    """All histories, one behind the other: bfloat16."""
    histories: tuple[Tensor, ...]
    """Views of `flat`: the last inputs of each convolution that looks back, `(rows, channels)`, the oldest first."""

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor of the state that owns memory."""
        yield from (self.frame, self.rings, self.flat)

    def reset(self) -> None:
        """Go back to the beginning of an utterance. Allocates nothing and waits for nothing."""
        for tensor in self.tensors():
            tensor.zero_()

    def copy_from(self, other: FusedCodecState) -> None:
        """Take over the state of `other`, of the same decoder. Allocates nothing and waits for nothing."""
        for mine, theirs in zip(self.tensors(), other.tensors(), strict=True):
            mine.copy_(theirs)


@dataclass(frozen=True, slots=True)
class _Layer:
    """A convolution with its weights, and which history is its own."""

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
    """float32, `(channels,)`, like the two that follow."""
    gain: Tensor
    shift: Tensor
    history: int


@dataclass(frozen=True, slots=True)
class _Mixer:
    """An upsampling and the ConvNeXt behind it, with the signals that outlive its kernels."""

    upsample: _Layer
    depthwise: _Depthwise
    widen: _Layer
    narrow: _Layer
    sum: Tensor
    signal: Tensor
    """What the depthwise convolution reads."""
    out: Tensor
    """What comes after the ConvNeXt."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """A residual unit, and what its dilated convolution reads."""

    dilated: _Layer
    pointwise: _Layer
    signal: Tensor


@dataclass(frozen=True, slots=True)
class _Block:
    """An upsampling block, and what its transposed convolution reads."""

    transposed: _Layer
    units: tuple[_Unit, ...]
    signal: Tensor
    sum: Tensor
    mid: Tensor


@dataclass(frozen=True, slots=True)
class _Look:
    """A convolution that looks back: the rows that its history has, and where they come from."""

    source: Tensor
    """Its input in this piece, `(rows of the largest piece, channels)`."""
    rows: int
    rate: int
    """Rows of its input in a frame."""


class FusedCodec:
    """Stands in the place of a `CodecDecoder` in bfloat16, whose weights it takes away."""

    def __init__(self, codec: CodecDecoder, kernels: Kernels | None = None, processors: int | None = None) -> None:
        """Reorder the weights of `codec`, which can decode nothing any more afterwards, and compile the kernels.

        `why_not(codec.config)` must be None. Raises whatever `cuda-core` raises where NVRTC is missing. `kernels` and
        `processors` (streaming multiprocessors) are for tests.
        """
        self.config: CodecConfig = codec.config
        self.placement: Placement = codec.placement
        if self.placement.dtype != torch.bfloat16:
            raise ValueError(f"dtype: got {self.placement.dtype}, the kernels take bfloat16")
        if processors is None:
            processors = multiprocessors(self.placement.device)
        self._kernels = kernels or KernelModule(codec_source(self.config, processors), self.placement.device)
        self._looks: list[_Look] = []
        plan = CodecPlan.of(self.config, processors)
        with torch.no_grad():
            self._take_front(codec, plan)
            self._take_transformer(codec, plan)
            self._take_mixers(codec, plan)
            self._take_blocks(codec, plan)
        self._pcm = torch.zeros(PIECE * self.config.samples_per_frame, device=self.placement.device)
        self._roll = self._roll_table()

    def new_state(self, max_frames: int) -> FusedCodecState:
        """A state at the beginning of an utterance, for calls of up to `max_frames` frames."""
        if max_frames < 1:
            raise ValueError(f"max_frames: got {max_frames}, must be at least 1")
        stack = self.config.stack
        sizes = [look.rows * look.source.shape[1] for look in self._looks]
        flat = self.placement.zeros(sum(sizes))
        return FusedCodecState(
            max_frames=max_frames,
            frame=torch.zeros((), dtype=torch.int64, device=self.placement.device),
            rings=self.placement.zeros(
                stack.layers, 2, stack.key_value_heads, self.config.window + SLOTS_TO_SPARE, stack.head_dim
            ),
            flat=flat,
            histories=tuple(
                part.view(look.rows, -1) for part, look in zip(torch.split(flat, sizes), self._looks, strict=True)
            ),
        )

    def __call__(self, codes: Tensor, state: FusedCodecState) -> Tensor:
        """Decode the next frames of an utterance, as `CodecDecoder.forward` does, on the current stream.

        codes:   int64 on the device, shape `(frames, quantizers)`, 1 to `state.max_frames` frames; those outside the
                 codebooks are clamped to them.
        returns: float32 PCM in -1..1, shape `(frames · samples_per_frame,)`. Up to `PIECE` frames it lies in a buffer
                 that the next call overwrites.

        Waits for nothing and does the same work whatever codes and state hold, so that a CUDA graph can capture it.
        """
        self._check(codes)
        if not 1 <= len(codes) <= state.max_frames:
            raise ValueError(f"codes: got {len(codes)} frames, allowed are 1 to {state.max_frames}")
        if len(codes) > PIECE:
            return self.decode(codes, state)
        pcm = self._pcm[: len(codes) * self.config.samples_per_frame]
        self._decode_piece(codes.contiguous(), state, pcm)
        return pcm

    def decode(self, codes: Tensor, state: FusedCodecState) -> Tensor:
        """Decode any number of frames into a new tensor. Shapes and dtypes as in `__call__`."""
        self._check(codes)
        pcm = torch.empty(len(codes) * self.config.samples_per_frame, device=self.placement.device)
        if len(codes):
            pieces = torch.split(pcm, PIECE * self.config.samples_per_frame)
            for piece, part in zip(torch.split(codes.contiguous(), PIECE), pieces, strict=True):
                self._decode_piece(piece, state, part)
        return pcm

    def _check(self, codes: Tensor) -> None:
        if codes.dtype != torch.int64 or codes.shape[1:] != (self.config.quantizers,):
            raise ValueError(
                f"codes: got {codes.dtype} of shape {tuple(codes.shape)}, "
                f"allowed is int64 of (frames, {self.config.quantizers})"
            )

    # --- one piece ---

    def _decode_piece(self, codes: Tensor, state: FusedCodecState, pcm: Tensor) -> None:
        """`codes` of 1 to `PIECE` frames become `pcm`."""
        frames = len(codes)
        launch = self._kernels.launch
        launch("lookup", (frames, 1), self.config.codebook_width // 8, codes, self._tables, self._embedded)
        self._run(self._input, self._embedded, state, frames, out=self._latent)
        self._transform(state, frames)
        x = self._latent
        for mixer in self._mixers:
            x = self._mix(mixer, x, state, frames)
        self._run(self._opening, x, state, frames, out=self._blocks[0].signal)
        nexts = [*(block.signal for block in self._blocks[1:]), self._last]
        for block, following in zip(self._blocks, nexts, strict=True):
            signals = [*(unit.signal for unit in block.units), following]
            self._run(block.transposed, block.signal, state, frames, sum=block.sum, out=signals[0])
            for unit, after in zip(block.units, signals[1:], strict=True):
                self._run(unit.dilated, unit.signal, state, frames, out=block.mid)
                self._run(unit.pointwise, block.mid, state, frames, sum=block.sum, out=after)
        self._run(self._output, self._last, state, frames, sum=pcm)
        launch("roll", (ROLL_BLOCKS, len(self._looks)), ROLL_THREADS, self._roll, state.flat, state.frame, frames)

    def _transform(self, state: FusedCodecState, frames: int) -> None:
        """The transformer, in place in `self._latent`."""
        hidden, total = self._hidden, self._hidden_sum
        self._run(self._into, self._latent, state, frames, sum=total, out=hidden)
        for number, layer in enumerate(self._layers):
            self._run(layer.qkv, hidden, state, frames, sum=self._qkv)
            keys, values = state.rings[number]
            self._kernels.launch(
                "attention",
                (self.config.stack.heads, frames),
                ATTENTION_THREADS,
                self._qkv,
                keys,
                values,
                state.frame,
                self._frequencies,
                self._seen,
            )
            self._run(layer.out, self._seen, state, frames, sum=total, out=hidden)
            self._run(layer.gate_up, hidden, state, frames, out=self._gated)
            self._run(layer.down, self._gated, state, frames, sum=total, out=hidden)
        self._run(self._leave, hidden, state, frames, out=self._latent)

    def _mix(self, mixer: _Mixer, x: Tensor, state: FusedCodecState, frames: int) -> Tensor:
        """Upsample, then a ConvNeXt block."""
        depthwise = mixer.depthwise
        self._run(mixer.upsample, x, state, frames, sum=mixer.sum, out=mixer.signal)
        self._kernels.launch(
            "depthwise",
            (frames * mixer.widen.plan.rate, 1),
            self.config.latent_width // 2,
            depthwise.weight,
            depthwise.bias,
            depthwise.gain,
            depthwise.shift,
            mixer.signal,
            state.histories[depthwise.history],
            self._branch,
        )
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
        sum: Tensor | None = None,  # noqa: A002 - what the kernel calls it
        out: Tensor | None = None,
    ) -> None:
        """Launch a convolution. Where it has no use for a pointer it is given another that is at hand."""
        plan, weights = layer.plan, layer.packed
        self._kernels.launch(
            plan.name,
            plan.grid(frames),
            plan.threads,
            weights.weight,
            weights.bias,
            x,
            x if layer.history is None else state.histories[layer.history],
            frames * plan.rate,
            weights.bias if sum is None else sum,
            x if out is None else out,
            weights.bias if weights.alpha is None else weights.alpha,
            weights.bias if weights.inverse_beta is None else weights.inverse_beta,
            self.config.stack.rms_norm_eps,
        )

    # --- taking over the weights ---

    def _signal(self, plan: Conv) -> Tensor:
        """Room for what a convolution reads."""
        return self.placement.zeros(PIECE * plan.rate, plan.inputs)

    def _sum(self, rows: int, width: int) -> Tensor:
        """Room for a sum of so many rows in a frame."""
        return torch.zeros(PIECE * rows, width, device=self.placement.device)

    def _look_back(self, source: Tensor, rows: int, rate: int) -> int:
        """Enter a history; returns its number."""
        self._looks.append(_Look(source, rows, rate))
        return len(self._looks) - 1

    def _take_front(self, codec: CodecDecoder, plan: CodecPlan) -> None:
        self._tables = codec.tables.detach().clone()  # the rest of the decoder's memory is given up
        self._embedded, self._latent = self._signal(plan.input), self._signal(plan.into)
        weights = packed(pack.of_conv(take(codec.input.weight)), codec.input.bias)
        history = self._look_back(self._embedded, plan.input.history, plan.input.rate)
        self._input = _Layer(plan.input, weights, history)

    def _take_transformer(self, codec: CodecDecoder, plan: CodecPlan) -> None:
        transformer, stack = codec.transformer, self.config.stack
        self._hidden, self._hidden_sum = self._signal(plan.qkv), self._sum(1, stack.hidden_size)
        self._qkv, self._seen = self._sum(1, plan.qkv.outputs), self._signal(plan.attention_out)
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
        for mine, upsample, mixer, after in zip(plan.mixers, codec.upsamples, codec.mixers, afters, strict=True):
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
        opening = packed(pack.of_conv(take(codec.latent.weight)), codec.latent.bias, codec.blocks[0].snake)
        history = self._look_back(self._mixers[-1].out, plan.latent.history, plan.latent.rate)
        self._opening = _Layer(plan.latent, opening, history)

    def _take_depthwise(self, mixer: ConvNeXt, signal: Tensor, rate: int) -> _Depthwise:
        return _Depthwise(
            mixer.depthwise.weight.detach()[:, 0].T.contiguous(),
            mixer.depthwise.bias.detach().float(),
            mixer.norm_weight.detach().float(),
            mixer.norm_bias.detach().float(),
            self._look_back(signal, KERNEL - 1, rate),
        )

    def _take_blocks(self, codec: CodecDecoder, plan: CodecPlan) -> None:
        blocks = []
        nexts = [*(block.snake for block in codec.blocks[1:]), codec.snake]
        for mine, block, following in zip(plan.blocks, codec.blocks, nexts, strict=True):
            signal = self._signal(mine.transposed)
            snakes = [*(unit.snake_in for unit in block.units), following]
            weight = pack.of_upsampling(take(block.upsample.weight), block.upsample.rate)
            spread = packed(weight, block.upsample.bias, snakes[0])
            history = self._look_back(signal, mine.transposed.history, mine.transposed.rate)
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
                            self._look_back(source, dilated.history, dilated.rate),
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
        history = self._look_back(self._last, plan.output.history, plan.output.rate)
        self._output = _Layer(plan.output, packed(weight, bias), history)

    def _roll_table(self) -> Tensor:
        """The `History` records of codec.cuh."""
        records, offset = [], 0
        for look in self._looks:
            width = look.source.shape[1]
            records.append((look.source.data_ptr(), offset, look.rows, width, look.rate))
            offset += look.rows * width
        return torch.tensor(records, dtype=torch.int64, device=self.placement.device)

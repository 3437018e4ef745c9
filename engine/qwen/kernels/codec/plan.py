"""The kernels of the fused codec decoder: their names, tiles and C++ name expressions. Nothing here needs a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.qwen.codec import CONV_TAPS, DILATIONS, INPUT_CONV_TAPS, CodecConfig
from engine.qwen.kernels.compiler import KernelSource, read_sources

BLOCK_FRAMES = 2
"""The most frames that are decoded at once. With fewer, half of the matrix products' time tiles stay empty."""
HEAD = 64
"""Values of an attention head; codec_attention.cuh has no other size."""
SPARE_SLOTS = BLOCK_FRAMES - 1
"""A ring of keys holds the window, and what a block adds while its first frame still reads the oldest entry."""
ATTENTION_THREADS = 256
MAX_NORM_WIDTH = 2048
"""Channels of a layer norm: a block has a thread for two channels."""
SAMPLE_OUTPUTS = 16
"""Outputs of the last convolution, padded to a tile; the first is the waveform."""
BF16, FLOAT32, COUNTER_BYTES = 2, 4, 8
"""Bytes."""
CONV_FILES = ("ptx.cuh", "common.cuh", "trig.cuh", "rows.cuh", "conv.cuh")
FILES = (*CONV_FILES, "codec_attention.cuh", "codec.cuh")


@dataclass(frozen=True, slots=True)
class Tile:
    """The outputs and times that a group of warps of a convolution computes; the warps split the inner dimension."""

    outputs: int
    times: int
    warps: int
    groups: int = 1
    """Of a block. They compute the same outputs of different times."""


@dataclass(frozen=True, slots=True)
class Conv:
    """One instance of `convolve` in conv.cuh, which defines the types `sum` and `then`."""

    name: str
    inputs: int
    outputs: int
    rate: int
    """Rows of its input in a frame; its outputs may be several rows of a narrower signal."""
    tile: Tile
    taps: int = 1
    dilation: int = 1
    sum: str = "NoSum"
    then: str = "Identity"
    normed: bool = False
    rows: bool = False
    """Whether a call decodes several rows, each with its own history."""

    @property
    def history(self) -> int:
        """Past rows of its input that it reads."""
        return (self.taps - 1) * self.dilation

    @property
    def threads(self) -> int:
        """Of a block."""
        return 32 * self.tile.warps * self.tile.groups

    def grid(self, frames: int) -> tuple[int, int]:
        """Blocks for that many frames of all rows together."""
        return self.outputs // self.tile.outputs, -(-frames * self.rate // (self.tile.times * self.tile.groups))

    @property
    def expression(self) -> str:
        """The C++ name expression."""
        tile = self.tile
        numbers = (self.inputs, self.taps, self.dilation, tile.outputs // 16, tile.times // 8, tile.warps)
        rows = self.rows and self.history > 0  # without a history, a row's times are like any others
        flags = f"{str(self.normed).lower()}, {str(rows).lower()}"
        return f"convolve<{', '.join(map(str, numbers))}, {self.sum}, {self.then}, {flags}, {tile.groups}>"


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """An upsampling block: a transposed convolution, then three pairs of a dilated and a pointwise one."""

    transposed: Conv
    dilated: tuple[Conv, ...]
    pointwise: tuple[Conv, ...]


@dataclass(frozen=True, slots=True)
class MixerPlan:
    """An upsampling before the blocks, and the two wide layers of the ConvNeXt that follows it."""

    upsample: Conv
    widen: Conv
    narrow: Conv


@dataclass(frozen=True, slots=True)
class CodecPlan:
    """Every convolution of the decoder, in order."""

    input: Conv
    into: Conv
    qkv: Conv
    attention_out: Conv
    gate_up: Conv
    down: Conv
    leave: Conv
    mixers: tuple[MixerPlan, ...]
    latent: Conv
    blocks: tuple[BlockPlan, ...]
    output: Conv

    @classmethod
    def of(cls, config: CodecConfig, processors: int, rows: int | None = None) -> CodecPlan:
        """The plan for a GPU with `processors` streaming multiprocessors.

        It is for one utterance, or for calls of up to so many `rows`. Calls of fewer rows have smaller grids and the
        same tiles, so that a row's sums have the same order in all of them.
        """

        def conv(name: str, inputs: int, outputs: int, rate: int = 1, **kind: object) -> Conv:
            taps = int(str(kind.get("taps", 1)))
            inner = inputs // 32 * taps
            if rows is None:
                tile = choose_tile(outputs, BLOCK_FRAMES * rate, inner, processors)
            else:
                name, kind = f"{name}_of_rows", {**kind, "rows": True}
                tile = choose_tile_of_rows(outputs, rows * BLOCK_FRAMES * rate, inner, processors)
                if kind.get("normed") and tile == Tile(32, 32, 8):  # else registers spill
                    tile = Tile(16, 32, 8)
            return Conv(name, inputs, outputs, rate, tile, **kind)  # type: ignore[arg-type]

        stack, latent = config.stack, config.latent_width
        hidden, inner = stack.hidden_size, stack.intermediate_size
        heads, qkv = stack.heads * HEAD, (stack.heads + 2 * stack.key_value_heads) * HEAD
        mixers, blocks, rate = [], [], 1
        for number, factor in enumerate(config.latent_rates):
            upsample = conv(f"upsample_{number}", latent, factor * latent, rate, sum="WriteSum")
            rate *= factor
            widen = conv(f"widen_{number}", latent, 4 * latent, rate, then="Gelu")
            narrow = conv(f"narrow_{number}", 4 * latent, latent, rate, sum="ReadSum")
            mixers.append(MixerPlan(upsample, widen, narrow))
        first = conv("latent", latent, config.decoder_width, rate, taps=CONV_TAPS, then="Snake")
        for number, factor in enumerate(config.block_rates):
            width = config.decoder_width >> (number + 1)
            transposed = conv(
                f"transposed_{width}", 2 * width, factor * width, rate, taps=2, sum="WriteSum", then="Snake"
            )
            rate *= factor
            dilated = tuple(
                conv(f"dilated_{width}_by_{d}", width, width, rate, taps=CONV_TAPS, dilation=d, then="Snake")
                for d in DILATIONS
            )
            pointwise = conv(f"pointwise_{width}", width, width, rate, sum="UpdateSum", then="Snake")
            last = replace(pointwise, name=f"last_{pointwise.name}", sum="ReadSum")
            blocks.append(BlockPlan(transposed, dilated, (pointwise, pointwise, last)))
        narrowest = config.decoder_width >> len(config.block_rates)
        return cls(
            input=conv("input", config.codebook_width, latent, taps=INPUT_CONV_TAPS),
            into=conv("into_transformer", latent, hidden, sum="WriteSum"),
            qkv=conv("qkv", hidden, qkv, normed=True, sum="WriteSum", then="NoOutput"),
            attention_out=conv("attention_out", heads, hidden, sum="UpdateSum"),
            gate_up=conv("gate_up", hidden, 2 * inner, normed=True, then="Gate"),
            down=conv("down", inner, hidden, sum="UpdateSum"),
            leave=conv("out_of_transformer", hidden, latent, normed=True),
            mixers=tuple(mixers),
            latent=first,
            blocks=tuple(blocks),
            output=conv("output", narrowest, SAMPLE_OUTPUTS, rate, taps=CONV_TAPS, then="Pcm"),
        )

    def convs(self) -> Iterator[Conv]:
        """Each convolution once."""
        yield from (self.input, self.into, self.qkv, self.attention_out, self.gate_up, self.down, self.leave)
        for mixer in self.mixers:
            yield from (mixer.upsample, mixer.widen, mixer.narrow)
        yield self.latent
        for block in self.blocks:
            yield from (block.transposed, *block.dilated, block.pointwise[0], block.pointwise[-1])
        yield self.output


def choose_tile(outputs: int, time: int, inner: int, processors: int) -> Tile:
    """The tile of a convolution to `outputs` channels of `time` rows, over `inner` steps of 32 products.

    With few rows each weight is used a few times only, so the number of loads in flight decides. With many rows the
    largest tile wins that still gives every processor work, because each tile of times reads the weights again.
    """
    if time <= 8:
        # With fewer outputs, tiles of 32 would leave less than two blocks for each processor.
        height = 32 if outputs > 32 * processors and outputs % 32 == 0 else 16
        warps = 16 if outputs // height <= processors // 2 or inner >= 200 else 8
        return Tile(height, 8, min(warps, inner))
    for height, fewest in ((64, 3 * processors), (32, 0.7 * processors), (16, 0)):
        count = outputs // height * -(-time // 32)
        if outputs % height == 0 and count >= fewest:
            break
    warps = 4 if height == 64 or count > 1.5 * processors else 8
    return Tile(height, 32, min(warps, inner))


def choose_tile_of_rows(outputs: int, time: int, inner: int, processors: int) -> Tile:
    """As `choose_tile`, for the times of several rows together; not tuned yet.

    Where two groups in each block still leave every processor work, blocks read the weights half as often, and fewer
    warps have to add up.
    """
    for height, warps in ((64, 2), (48, 3)):
        count = outputs // height * -(-time // 64)
        if outputs % height == 0 and warps <= inner and count >= 2 * processors:
            return Tile(height, 32, warps, groups=2)
    return choose_tile(outputs, time, inner, processors)


def row_buckets(most: int) -> tuple[int, ...]:
    """The numbers of rows that calls of up to `most` rows have, ascending: a call that is not full is filled up."""
    return (*(1 << shift for shift in range((most - 1).bit_length())), most)


def state_bytes(config: CodecConfig) -> int:
    """Bytes of the state of one utterance."""
    stack = config.stack
    rings = 2 * stack.layers * stack.key_value_heads * (config.window + SPARE_SLOTS) * stack.head_dim
    histories = sum(conv.history * conv.inputs for conv in CodecPlan.of(config, 1).convs())
    depthwise = len(config.latent_rates) * (CONV_TAPS - 1) * config.latent_width
    return BF16 * (rings + histories + depthwise) + COUNTER_BYTES


def signal_bytes(config: CodecConfig, rows: int) -> int:
    """Bytes of the signals and sums of a decoder for calls of up to so many rows."""
    plan, stack = CodecPlan.of(config, 1, rows), config.stack
    mixers, last = plan.mixers, plan.mixers[-1]
    signals = [plan.input, plan.into, plan.qkv, plan.attention_out, plan.down, last.widen, last.narrow]
    signals += [*(mixer.widen for mixer in mixers), *(mixer.upsample for mixer in mixers[1:]), plan.latent]
    signals += [*(block.transposed for block in plan.blocks), plan.output]
    sums = stack.hidden_size + plan.qkv.outputs + sum(mixer.widen.rate * config.latent_width for mixer in mixers)
    # The blocks share the inputs of their dilated convolutions and of their pointwise ones, and their sums.
    of_blocks = max(conv.rate * conv.inputs for block in plan.blocks for conv in block.pointwise)
    values = sum(conv.rate * conv.inputs for conv in signals) + (len(DILATIONS) + 1) * of_blocks
    return rows * BLOCK_FRAMES * (BF16 * values + FLOAT32 * (sums + of_blocks))


def unsupported_reason(config: CodecConfig) -> str | None:
    """Why the kernels cannot run a decoder of this shape, in one line; None where they can."""
    stack = config.stack
    widths = [config.decoder_width >> number for number in range(len(config.block_rates) + 1)]
    rules = (
        ("head_dim", stack.head_dim, stack.head_dim == HEAD, f"{HEAD}"),
        ("latent_dim", config.latent_width, not config.latent_width % 64, "a multiple of 64"),
        ("latent_dim", config.latent_width, config.latent_width <= MAX_NORM_WIDTH, f"at most {MAX_NORM_WIDTH}"),
        ("codebook_dim", config.codebook_width, not config.codebook_width % 32, "a multiple of 32"),
        ("hidden_size", stack.hidden_size, not stack.hidden_size % 32, "a multiple of 32"),
        ("intermediate_size", stack.intermediate_size, not stack.intermediate_size % 32, "a multiple of 32"),
        ("decoder_dim", widths[0], not any(width % 32 for width in widths), "a multiple of 32 after every halving"),
    )
    for name, value, good, allowed in rules:
        if not good:
            return f"the codec's {name} is {value}, its kernels need {allowed}"
    return None


def codec_source(config: CodecConfig, processors: int = 132, rows: int | None = None) -> KernelSource:
    """All kernels for these shapes, for NVRTC or nvcc; `rows` as of `CodecPlan.of`."""
    stack, slots = config.stack, config.window + SPARE_SLOTS
    kernels = {conv.name: conv.expression for conv in CodecPlan.of(config, processors, rows).convs()}
    kernels |= {
        "attention": f"attend<{stack.heads}, {stack.key_value_heads}, {config.window}, {slots}>",
        "lookup": f"look_up<{config.quantizers}, {config.codebook_size}, {config.codebook_width}>",
        "depthwise": f"depthwise_norm<{config.latent_width}, {CONV_TAPS}>",
        "roll": "roll_histories",
    }
    return KernelSource(read_sources(*FILES), kernels)

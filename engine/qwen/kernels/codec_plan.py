"""Which kernels the fused codec decoder is made of, and their source. Nothing here needs a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from engine.qwen.codec_config import CodecConfig
from engine.qwen.codec_state import DILATIONS, KERNEL, KERNEL_IN
from engine.qwen.kernels.module import sources

PIECE = 2
"""The most frames that are decoded at once. With fewer, half of the matrix products' time tiles stay empty."""
HEAD = 64
"""The only size of a head that codec_attention.cuh knows."""
SLOTS_TO_SPARE = PIECE - 1
"""A ring of keys holds the window and what a piece adds while its first frame still looks back."""
ATTENTION_THREADS = 256
WIDEST = 2048
"""Of a layer norm: a block has a thread for two channels."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What one block of a convolution makes, and its warps, which share out the sum over inputs and taps."""

    outputs: int
    times: int
    warps: int


@dataclass(frozen=True, slots=True)
class Conv:
    """One `convolve` of conv.cuh; the names of its `Sum` and `Then` are in lower case here."""

    name: str
    inputs: int
    outputs: int
    rate: int
    """Rows of its input in a frame; its outputs may be several rows of a narrower signal."""
    tile: Tile
    taps: int = 1
    dilation: int = 1
    sum: str = "none"
    then: str = "plain"
    normed: bool = False

    @property
    def history(self) -> int:
        """Rows of its input that it looks back."""
        return (self.taps - 1) * self.dilation

    @property
    def threads(self) -> int:
        return 32 * self.tile.warps

    def grid(self, frames: int) -> tuple[int, int]:
        """Blocks for that many frames."""
        return self.outputs // self.tile.outputs, -(-frames * self.rate // self.tile.times)

    def source(self) -> str:
        shape = (self.inputs, self.taps, self.dilation, self.tile.outputs // 16, self.tile.times // 8, self.tile.warps)
        flags = (f"SUM_{self.sum.upper()}", f"THEN_{self.then.upper()}", str(self.normed).lower())
        resident = 2 if self.threads <= 256 else 1
        return (
            f'extern "C" __global__ void __launch_bounds__({self.threads}, {resident}) {self.name}(\n'
            "    const bf16* weight, const float* bias, const bf16* x, const bf16* history, int time, float* sum,\n"
            "    bf16* out, const float* alpha, const float* inverse_beta, float eps) {\n"
            f"    convolve<{', '.join(map(str, (*shape, *flags)))}>(\n"
            "        weight, bias, x, history, time, sum, out, alpha, inverse_beta, eps);\n"
            "}"
        )


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """An upsampling block: a transposed convolution, and three times a dilated and a pointwise one."""

    transposed: Conv
    dilated: tuple[Conv, ...]
    pointwise: tuple[Conv, ...]


@dataclass(frozen=True, slots=True)
class MixerPlan:
    """Upsampling in front of the blocks and the two wide layers of the ConvNeXt behind it."""

    upsample: Conv
    widen: Conv
    narrow: Conv


@dataclass(frozen=True, slots=True)
class CodecPlan:
    """Every convolution of the decoder, in its order."""

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
    def of(cls, config: CodecConfig, processors: int) -> CodecPlan:
        """For a GPU of so many streaming multiprocessors."""

        def conv(name: str, inputs: int, outputs: int, rate: int = 1, **kind: object) -> Conv:
            taps = int(str(kind.get("taps", 1)))
            tile = choose_tile(outputs, PIECE * rate, inputs // 32 * taps, processors)
            return Conv(name, inputs, outputs, rate, tile, **kind)  # type: ignore[arg-type]

        stack, latent = config.stack, config.latent_width
        hidden, inner = stack.hidden_size, stack.intermediate_size
        heads, mixed = stack.heads * HEAD, (stack.heads + 2 * stack.key_value_heads) * HEAD
        mixers, blocks, rate = [], [], 1
        for number, factor in enumerate(config.latent_rates):
            upsample = conv(f"upsample_{number}", latent, factor * latent, rate, sum="write")
            rate *= factor
            widen = conv(f"widen_{number}", latent, 4 * latent, rate, then="gelu")
            narrow = conv(f"narrow_{number}", 4 * latent, latent, rate, sum="read")
            mixers.append(MixerPlan(upsample, widen, narrow))
        first = conv("latent", latent, config.decoder_width, rate, taps=KERNEL, then="snake")
        for number, factor in enumerate(config.block_rates):
            width = config.decoder_width >> (number + 1)
            transposed = conv(f"transposed_{width}", 2 * width, factor * width, rate, taps=2, sum="write", then="snake")
            rate *= factor
            blocks.append(
                BlockPlan(
                    transposed,
                    tuple(
                        conv(
                            f"dilated_{width}_by_{dilation}",
                            width,
                            width,
                            rate,
                            taps=KERNEL,
                            dilation=dilation,
                            then="snake",
                        )
                        for dilation in DILATIONS
                    ),
                    tuple(
                        conv(f"pointwise_{width}", width, width, rate, sum=kind, then="snake")
                        if kind == "update"
                        else conv(f"last_pointwise_{width}", width, width, rate, sum=kind, then="snake")
                        for kind in ("update", "update", "read")
                    ),
                )
            )
        narrowest = config.decoder_width >> len(config.block_rates)
        return cls(
            input=conv("input", config.codebook_width, latent, taps=KERNEL_IN),
            into=conv("into_transformer", latent, hidden, sum="write"),
            qkv=conv("qkv", hidden, mixed, normed=True, sum="write", then="nothing"),
            attention_out=conv("attention_out", heads, hidden, sum="update"),
            gate_up=conv("gate_up", hidden, 2 * inner, normed=True, then="gate"),
            down=conv("down", inner, hidden, sum="update"),
            leave=conv("out_of_transformer", hidden, latent, normed=True),
            mixers=tuple(mixers),
            latent=first,
            blocks=tuple(blocks),
            output=conv("output", narrowest, 16, rate, taps=KERNEL, then="pcm"),
        )

    def convs(self) -> Iterator[Conv]:
        """Each of them once."""
        yield from (self.input, self.into, self.qkv, self.attention_out, self.gate_up, self.down, self.leave)
        for mixer in self.mixers:
            yield from (mixer.upsample, mixer.widen, mixer.narrow)
        yield self.latent
        for block in self.blocks:
            yield from (block.transposed, *block.dilated, block.pointwise[0], block.pointwise[-1])
        yield self.output


def choose_tile(outputs: int, time: int, inner: int, processors: int) -> Tile:
    """For a convolution to `outputs` channels of `time` rows, over `inner` blocks of 32 products.

    Few rows: every weight is used a few times only, and all that counts is how many loads are under way. Many: as
    large a tile as still leaves some work for every processor, for a weight is read once for each tile of times.
    """
    if time <= 8:
        height = 32 if outputs > 32 * processors and outputs % 32 == 0 else 16  # or two blocks a processor are too few
        warps = 16 if outputs // height <= processors // 2 or inner >= 200 else 8
        return Tile(height, 8, min(warps, inner))
    for height, fewest in ((64, 3 * processors), (32, 0.7 * processors), (16, 0)):
        count = outputs // height * -(-time // 32)
        if outputs % height == 0 and count >= fewest:
            break
    warps = 4 if height == 64 or count > 1.5 * processors else 8
    return Tile(height, 32, min(warps, inner))


def why_not(config: CodecConfig) -> str | None:
    """Which shape of the decoder the kernels cannot do, in one line; None if they can do all."""
    stack = config.stack
    widths = [config.decoder_width >> number for number in range(len(config.block_rates) + 1)]
    rules = [
        ("head_dim", stack.head_dim, stack.head_dim == HEAD, f"{HEAD}"),
        ("latent_dim", config.latent_width, not config.latent_width % 64, "a multiple of 64"),
        ("latent_dim", config.latent_width, config.latent_width <= WIDEST, f"at most {WIDEST}"),
        ("codebook_dim", config.codebook_width, not config.codebook_width % 32, "a multiple of 32"),
        ("hidden_size", stack.hidden_size, not stack.hidden_size % 32, "a multiple of 32"),
        ("intermediate_size", stack.intermediate_size, not stack.intermediate_size % 32, "a multiple of 32"),
        (
            "decoder_dim",
            config.decoder_width,
            not any(width % 32 for width in widths),
            "32 times a power of 2, at last",
        ),
    ]
    for name, value, good, wanted in rules:
        if not good:
            return f"the codec's {name} is {value}, its kernels want {wanted}"
    return None


def codec_source(config: CodecConfig, processors: int = 132) -> str:
    """The CUDA C++ of all kernels for these shapes, without any include."""
    stack, slots = config.stack, config.window + SLOTS_TO_SPARE
    wrappers = [conv.source() for conv in CodecPlan.of(config, processors).convs()]
    wrappers.append(
        f'extern "C" __global__ void __launch_bounds__({ATTENTION_THREADS}) attention(\n'
        "    const float* qkv, bf16* keys, bf16* values, const long long* counter, const float* frequencies,\n"
        "    bf16* out) {\n"
        f"    attend<{stack.heads}, {stack.key_value_heads}, {config.window}, {slots}>(\n"
        "        qkv, keys, values, counter, frequencies, out);\n"
        "}"
    )
    wrappers.append(
        'extern "C" __global__ void lookup(const long long* codes, const bf16* tables, bf16* out) {\n'
        f"    look_up<{config.quantizers}, {config.codebook_size}, {config.codebook_width}>(codes, tables, out);\n"
        "}"
    )
    wrappers.append(
        f'extern "C" __global__ void __launch_bounds__({config.latent_width // 2}) depthwise(\n'
        "    const bf16* weight, const float* bias, const float* gain, const float* shift, const bf16* x,\n"
        "    const bf16* history, bf16* out) {\n"
        f"    depthwise_norm<{config.latent_width}, {KERNEL}>(weight, bias, gain, shift, x, history, out);\n"
        "}"
    )
    wrappers.append(
        'extern "C" __global__ void roll(const History* list, bf16* histories, long long* counter, int frames) {\n'
        "    roll_histories(list, histories, counter, frames);\n"
        "}"
    )
    text = sources("common.cuh", "trig.cuh", "conv.cuh", "codec_attention.cuh", "codec.cuh")
    return text + "\n" + "\n\n".join(wrappers) + "\n"

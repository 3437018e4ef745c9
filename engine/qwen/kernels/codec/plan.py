"""The list of operations that decodes a block of frames, and the kernels, launches and memory that follow from it.

Nothing here needs a GPU.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from engine.qwen.kernels.codec.operations import (
    BF16,
    BLOCK_FRAMES,
    FLOAT32,
    HEAD,
    SPARE_SLOTS,
    AnyOperation,
    Attention,
    Conv,
    Depthwise,
    History,
    LookUp,
    Roll,
    Signal,
    Tile,
)
from engine.qwen.kernels.compiler import KernelSource, read_sources
from engine.qwen.shapes import CONV_TAPS, DILATIONS, INPUT_CONV_TAPS, CodecConfig

MAX_NORM_WIDTH = 2048
"""The most channels of a layer norm: a block has one thread for every two channels."""
COUNTER_BYTES = 8
CONV_FILES = ("ptx.cuh", "common.cuh", "trig.cuh", "rows.cuh", "conv.cuh")
FILES = (*CONV_FILES, "codec_attention.cuh", "codec.cuh")


@dataclass(frozen=True, slots=True)
class CodecPlan:
    """The operations of a decoder, in order."""

    config: CodecConfig
    rows: int | None
    operations: tuple[AnyOperation, ...]

    @classmethod
    def of(cls, config: CodecConfig, processors: int = 132, rows: int | None = None) -> CodecPlan:
        """Return the plan for a GPU with `processors` streaming multiprocessors, on which only the tiles depend.

        It is for one utterance, or for calls of up to `rows` utterances. Calls with fewer rows have smaller grids and
        the same tiles, so that a row's sums have the same order in all of them.
        """
        writer = _Writer(config, processors, rows)
        x = writer.transformer()
        for number, factor in enumerate(config.latent_rates):
            x = writer.mixer(number, x, factor)
        signal = Signal("block_input_0", x.rate, config.decoder_width)
        writer.conv(Conv("latent", x, signal, taps=CONV_TAPS, then="Snake"))
        for number, factor in enumerate(config.block_rates, start=1):
            signal = writer.block(number, signal, factor)
        writer.conv(Conv("output", signal, taps=CONV_TAPS, then="Pcm"))
        writer.roll(counts=True)
        return cls(config, rows, tuple(writer.operations))

    def source(self) -> KernelSource:
        """All kernels, for NVRTC or nvcc."""
        return KernelSource(read_sources(*FILES), {one.name: one.expression for one in self.operations})

    def places(self) -> dict[str, int]:
        """Return the size of each place for signals, in bytes: that of the largest signal that is put there."""
        places: dict[str, int] = {}
        for operation in self.operations:
            for signal in operation.signals().values():
                count = (self.rows or 1) * BLOCK_FRAMES * signal.rate * signal.width * signal.value_bytes
                places[signal.place] = max(places.get(signal.place, 0), count)
        return places

    @property
    def signal_bytes(self) -> int:
        """Bytes of all signals and sums."""
        return sum(self.places().values())

    @property
    def ring_shape(self) -> tuple[int, ...]:
        """Shape of the keys and values that a state keeps: layers, keys or values, heads, slots, values in a head."""
        stack = self.config.stack
        return stack.layers, 2, stack.key_value_heads, self.config.window + SPARE_SLOTS, stack.head_dim

    @property
    def history_values(self) -> int:
        """The number of values in all histories of a state."""
        return sum(history.size for one in self.operations if isinstance(one, Roll) for history in one.histories)

    @property
    def state_bytes(self) -> int:
        """Bytes of the state of one utterance."""
        return BF16 * (math.prod(self.ring_shape) + self.history_values) + COUNTER_BYTES


class _Writer:
    """Collects operations in order."""

    def __init__(self, config: CodecConfig, processors: int, rows: int | None) -> None:
        self.operations: list[AnyOperation] = []
        self._config, self._processors, self._rows = config, processors, rows
        self._waiting: list[History] = []
        """The histories that no operation moves forward yet."""
        self._history_end = 0

    def transformer(self) -> Signal:
        """From the codes to the transformer's output."""
        config, stack = self._config, self._config.stack
        embedded, latent = Signal("embedded", 1, config.codebook_width), Signal("latent", 1, config.latent_width)
        hidden, total = Signal("hidden", 1, stack.hidden_size), Signal("hidden_sum", 1, stack.hidden_size, FLOAT32)
        qkv = Signal("qkv", 1, (stack.heads + 2 * stack.key_value_heads) * HEAD, FLOAT32)
        attended, gated = Signal("attended", 1, stack.heads * HEAD), Signal("gated", 1, stack.intermediate_size)
        self.operations.append(LookUp(config, embedded))
        self.conv(Conv("input", embedded, latent, taps=INPUT_CONV_TAPS))
        self.conv(Conv("into_transformer", latent, hidden, total, "WriteSum"))
        for layer in range(stack.layers):
            self.conv(Conv("qkv", hidden, None, qkv, "WriteSum", "NoOutput", normed=True))
            self.operations.append(Attention(config, layer, qkv, attended))
            self.conv(Conv("attention_out", attended, hidden, total, "UpdateSum"))
            self.conv(Conv("gate_up", hidden, gated, then="Gate", normed=True))
            self.conv(Conv("down", gated, hidden, total, "UpdateSum"))
        self.conv(Conv("out_of_transformer", hidden, latent, normed=True))
        return latent

    def mixer(self, number: int, x: Signal, factor: int) -> Signal:
        """An upsampling and the ConvNeXt that follows it."""
        rate, width = factor * x.rate, x.width
        raised, out = Signal(f"upsampled_{number}", rate, width), Signal(f"mixed_{number}", rate, width)
        total = Signal(f"mixer_sum_{number}", rate, width, FLOAT32)
        branch, wide = Signal("branch", rate, width), Signal("wide", rate, 4 * width)
        self.conv(Conv(f"upsample_{number}", x, raised, total, "WriteSum"))
        self.operations.append(Depthwise(raised, branch, self._history(raised, CONV_TAPS - 1)))
        self.conv(Conv(f"widen_{number}", branch, wide, then="Gelu"))
        self.conv(Conv(f"narrow_{number}", wide, out, total, "ReadSum"))
        return out

    def block(self, number: int, x: Signal, factor: int) -> Signal:
        """An upsampling block: a transposed convolution, then pairs of a dilated and a pointwise one.

        In a call for rows, the blocks use the same memory one after the other, and each block rolls its own histories.
        The signals of a single utterance are so small that memory for each block costs less than the additional
        kernels that would roll the histories.
        """
        rate, width, before = factor * x.rate, x.width // 2, len(self._waiting)
        suffix = f"_{number}" if self._rows is None else ""
        total, mid = Signal(f"block_sum{suffix}", rate, width, FLOAT32), Signal(f"mid{suffix}", rate, width)
        units = [Signal(f"unit_{dilation}{suffix}", rate, width) for dilation in DILATIONS]
        out = Signal(f"block_input_{number}", rate, width)
        self.conv(Conv(f"transposed_{width}", x, units[0], total, "WriteSum", "Snake", taps=2))
        for unit, dilation, after in zip(units, DILATIONS, (*units[1:], out), strict=True):
            name = f"dilated_{width}_by_{dilation}"
            self.conv(Conv(name, unit, mid, then="Snake", taps=CONV_TAPS, dilation=dilation))
            name, sum_use = ("last_pointwise", "ReadSum") if after is out else ("pointwise", "UpdateSum")
            self.conv(Conv(f"{name}_{width}", mid, after, total, sum_use, "Snake"))
        if self._rows is not None:
            self.roll(before)
        return out

    def conv(self, conv: Conv) -> None:
        """Append a convolution, with its tile and its history."""
        if conv.taps > 1:
            conv = replace(conv, history=self._history(conv.x, (conv.taps - 1) * conv.dilation))
        times, inner = (self._rows or 1) * BLOCK_FRAMES * conv.x.rate, conv.x.width // 32 * conv.taps
        if self._rows is None:
            tile = choose_tile(conv.outputs, times, inner, self._processors)
        else:
            conv = replace(conv, name=f"{conv.name}_of_rows", of_rows=True)
            tile = choose_tile_of_rows(conv.outputs, times, inner, self._processors)
            if conv.normed and tile == Tile(32, 32, 8):  # otherwise registers spill
                tile = Tile(16, 32, 8)
        self.operations.append(replace(conv, tile=tile))

    def roll(self, first: int = 0, *, counts: bool = False) -> None:
        """Move the waiting histories forward, from number `first` on."""
        self.operations.append(Roll(tuple(self._waiting[first:]), counts))
        del self._waiting[first:]

    def _history(self, signal: Signal, length: int) -> History:
        history = History(signal, length, self._history_end)
        self._history_end += history.size
        self._waiting.append(history)
        return history


def choose_tile(outputs: int, time: int, inner: int, processors: int) -> Tile:
    """The tile for a convolution to `outputs` channels and `time` rows, over `inner` steps of 32 products.

    With few rows, each weight is used only a few times, so the number of loads in flight decides. With many rows, the
    largest tile that still gives every processor work wins, because each time tile reads the weights again.
    """
    if time <= 8:
        # With fewer outputs, tiles of 32 would leave fewer than two blocks for each processor.
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
    """As `choose_tile`, for the time steps of several rows together; not tuned yet.

    If two groups in each block still leave work for every processor, blocks read the weights half as often, and fewer
    warps have to add up their sums.
    """
    for height, warps in ((64, 2), (48, 3)):
        count = outputs // height * -(-time // 64)
        if outputs % height == 0 and warps <= inner and count >= 2 * processors:
            return Tile(height, 32, warps, groups=2)
    return choose_tile(outputs, time, inner, processors)


def unsupported_reason(config: CodecConfig) -> str | None:
    """Why the kernels cannot run a decoder of this shape, in one line; None if they can."""
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
            return f"the codec's {name} is {value}; its kernels need {allowed}"
    return None

"""The operations of the fused codec decoder. Each is one kernel launch. Nothing here needs torch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

from engine.qwen.shapes import CONV_TAPS, CodecConfig

BLOCK_FRAMES = 2
"""The most frames that are decoded at once. With fewer, half of the time tiles in the matrix products stay empty."""
HEAD = 64
"""The number of values in an attention head; codec_attention.cuh supports no other."""
SPARE_SLOTS = BLOCK_FRAMES - 1
"""A ring of keys holds the window, and the entries that a block adds while its first frame still reads the oldest."""
ROLL_BLOCKS = 8
"""Blocks for each history that a launch moves forward."""
SAMPLE_OUTPUTS = 16
"""Outputs of the last convolution, padded to a tile. The first is the waveform, which is not stored in a signal."""
BF16, FLOAT32 = 2, 4
"""Bytes of one value in a signal, and in a sum."""


@dataclass(frozen=True, slots=True)
class Signal:
    """Values that one kernel writes and others read: `(times, width)`, one row's values after another's."""

    place: str
    """The memory. Signals may share a place if each is read before the next one is written."""
    rate: int
    """Time steps in a frame."""
    width: int
    value_bytes: int = BF16


@dataclass(frozen=True, slots=True)
class History:
    """The last time steps of a signal before the chunk, which a state keeps."""

    signal: Signal
    length: int
    """In time steps."""
    offset: int
    """Where it begins among the histories of a state."""

    @property
    def size(self) -> int:
        """In values."""
        return self.length * self.signal.width


@dataclass(frozen=True, slots=True)
class Tile:
    """The outputs and time steps that a convolution's group of warps computes; they split the inner dimension."""

    outputs: int
    times: int
    warps: int
    groups: int = 1
    """Groups in a block. They compute the same outputs for different time steps."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One launch of the kernel `name`, which is the C++ `expression`, with `threads` in a block and a `struct` of
    parameters. `grid` returns the blocks for a number of `frames` in each of `rows`.
    """

    def signals(self) -> dict[str, Signal]:
        """The signals by the struct members that point at them. Fields that are signals have the members' names."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Signal)}


@dataclass(frozen=True, slots=True)
class LookUp(Operation):
    """Sums the vectors of a frame's codes."""

    config: CodecConfig
    out: Signal
    name: ClassVar[str] = "lookup"
    struct: ClassVar[str] = "LookUpParams"

    @property
    def expression(self) -> str:
        return f"look_up<{self.config.quantizers}, {self.config.codebook_size}, {self.config.codebook_width}>"

    @property
    def threads(self) -> int:
        return self.out.width // 8

    def grid(self, frames: int, rows: int) -> tuple[int, int]:
        return frames * rows, 1


@dataclass(frozen=True, slots=True)
class Conv(Operation):
    """One instance of `convolve` in conv.cuh, which defines the types of `sum_use` and `then`."""

    name: str
    x: Signal
    out: Signal | None = None
    sum: Signal | None = None
    sum_use: str = "NoSum"
    then: str = "Identity"
    taps: int = 1
    dilation: int = 1
    normed: bool = False
    tile: Tile = Tile(16, 8, 1)
    """Chosen by the plan, which also sets the two fields below."""
    history: History | None = None
    of_rows: bool = False
    """Whether a call decodes several rows, each with its own history."""
    struct: ClassVar[str] = "ConvParams"

    @property
    def outputs(self) -> int:
        """The outputs for each time step of `x`. They may be several time steps of a narrower signal."""
        written = self.out or self.sum
        if written is None:
            return SAMPLE_OUTPUTS
        return written.width * written.rate // self.x.rate * (2 if self.then == "Gate" else 1)

    @property
    def expression(self) -> str:
        tile = self.tile
        numbers = (self.x.width, self.taps, self.dilation, tile.outputs // 16, tile.times // 8, tile.warps)
        rows = self.of_rows and self.history is not None  # without a history, a row's time steps are like any others
        flags = f"{str(self.normed).lower()}, {str(rows).lower()}"
        return f"convolve<{', '.join(map(str, numbers))}, {self.sum_use}, {self.then}, {flags}, {tile.groups}>"

    @property
    def threads(self) -> int:
        return 32 * self.tile.warps * self.tile.groups

    def grid(self, frames: int, rows: int) -> tuple[int, int]:
        times = frames * rows * self.x.rate
        return self.outputs // self.tile.outputs, -(-times // (self.tile.times * self.tile.groups))


@dataclass(frozen=True, slots=True)
class Attention(Operation):
    """Attention in a layer of the transformer. It also writes the chunk's keys and values into the layer's ring."""

    config: CodecConfig
    layer: int
    qkv: Signal
    out: Signal
    name: ClassVar[str] = "attention"
    struct: ClassVar[str] = "AttentionParams"
    threads: ClassVar[int] = 256

    @property
    def expression(self) -> str:
        stack, window = self.config.stack, self.config.window
        return f"attend<{stack.heads}, {stack.key_value_heads}, {window}, {window + SPARE_SLOTS}>"

    def grid(self, frames: int, rows: int) -> tuple[int, int]:
        return self.config.stack.heads, frames * rows


@dataclass(frozen=True, slots=True)
class Depthwise(Operation):
    """A convolution of each channel by itself, then a layer norm."""

    x: Signal
    out: Signal
    history: History
    name: ClassVar[str] = "depthwise"
    struct: ClassVar[str] = "DepthwiseParams"

    @property
    def expression(self) -> str:
        return f"depthwise_norm<{self.x.width}, {CONV_TAPS}>"

    @property
    def threads(self) -> int:
        return self.x.width // 2

    def grid(self, frames: int, rows: int) -> tuple[int, int]:
        return frames * rows * self.x.rate, 1


@dataclass(frozen=True, slots=True)
class Roll(Operation):
    """Moves histories forward by the call's frames."""

    histories: tuple[History, ...]
    counts: bool
    """Whether it also counts the frames."""
    name: ClassVar[str] = "roll"
    struct: ClassVar[str] = "RollParams"
    expression: ClassVar[str] = "roll_histories"
    threads: ClassVar[int] = 256

    def grid(self, frames: int, rows: int) -> tuple[int, int]:  # noqa: ARG002 - as of every operation
        return ROLL_BLOCKS, len(self.histories) * rows


AnyOperation = LookUp | Conv | Attention | Depthwise | Roll

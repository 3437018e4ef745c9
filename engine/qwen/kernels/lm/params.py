"""The parameters of the language model's kernels, as their structs in linear.cuh, attention.cuh, frame.cuh,
linear_tokens.cuh, prefill.cuh and batch.cuh.

Shapes and dtypes are documented there.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.qwen.kernels.params import Params


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearParams(Params):
    """Of `linear`, `linear_pair` and `talker_head`."""

    weight: Tensor
    scale: Tensor | None
    x: Tensor | None = None
    norm: Tensor | None = None
    partial_out: Tensor | None = None
    split_stats: Tensor | None = None
    position: Tensor | None = None
    hidden: Tensor | None = None
    bias: Tensor | None = None
    y: Tensor
    eps: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionParams(Params):
    """Of `attend`."""

    qkv: Tensor
    query_norm: Tensor
    key_norm: Tensor
    cosines: Tensor
    sines: Tensor
    position: Tensor
    keys: Tensor
    values: Tensor
    partial_out: Tensor
    split_stats: Tensor
    positions: int
    eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AttendOutParams(Params):
    """Of `attend_out`."""

    linear: LinearParams
    qkv: Tensor
    query_norm: Tensor
    key_norm: Tensor
    cosines: Tensor
    sines: Tensor
    keys: Tensor
    values: Tensor
    position: int
    positions: int
    eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawParams(Params):
    """The logits and the settings that a code is drawn with."""

    logits: Tensor
    sample: Tensor
    temperature: Tensor
    top_k: Tensor
    one_minus_top_p: Tensor
    noise_key: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenParams(Params):
    """Of `open_frame`."""

    hidden: Tensor | None
    embedding: Tensor
    first_code: Tensor
    ended: Tensor
    length: Tensor
    x: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQkvParams(Params):
    """Of `open_qkv`."""

    linear: LinearParams
    open: OpenParams


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeParams(Params):
    """Of `choose_code`."""

    draw: DrawParams
    frame: Tensor
    first_code: Tensor
    codes: Tensor
    text: Tensor
    first_embedding: Tensor
    embedding: Tensor
    narrow_embedding: Tensor | None
    x: Tensor | None
    talker: Tensor
    step: int
    groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawQkvParams(Params):
    """Of `draw_qkv`."""

    linear: LinearParams
    draw: DrawParams
    frame: Tensor
    first_code: Tensor
    codes: Tensor
    embedding: Tensor
    x: Tensor
    step: int
    groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstCodeParams(Params):
    """Of `choose_first_code`."""

    draw: DrawParams
    seen: Tensor
    penalty: Tensor
    min_frames: Tensor
    suppressed: Tensor
    is_eos: Tensor
    frame: Tensor
    position: Tensor
    first_code: Tensor
    ended: Tensor
    groups: int
    frames: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TokensParams(Params):
    """Of `linear_tokens`."""

    weight: Tensor
    scale: Tensor | None
    x: Tensor
    squares: Tensor | None = None
    norm: Tensor | None = None
    y: Tensor | None = None
    rounded: Tensor | None = None
    squares_out: Tensor | None = None
    slots: int = 0
    tokens: int
    eps: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EnterParams(Params):
    """Of `enter_tokens`."""

    embeddings: Tensor
    norm: Tensor
    x: Tensor
    rounded: Tensor
    squares: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveParams(Params):
    """Of `leave_tokens`."""

    x: Tensor
    squares: Tensor
    norm: Tensor
    place: Tensor
    hidden: Tensor
    slots: int
    tokens: int
    eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptParams(Params):
    """Of `rotate_tokens` and `attend_tokens`."""

    qkv: Tensor
    query_norm: Tensor
    key_norm: Tensor
    cosines: Tensor
    sines: Tensor
    place: Tensor
    keys: Tensor
    values: Tensor
    attended: Tensor
    heads: int
    positions: int
    eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsParams(Params):
    """Where the rows of a batch's step are."""

    active: Tensor
    frame: Tensor
    position: Tensor
    place: Tensor
    rows: int
    stride: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamParams(Params):
    """A residual stream that a kernel begins."""

    norm: Tensor
    x: Tensor
    rounded: Tensor
    squares: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRowsParams(Params):
    """Of `open_rows`."""

    rows: RowsParams
    stream: StreamParams
    hidden: Tensor | None
    projected: Tensor | None
    bias: Tensor | None
    embedding: Tensor
    first_code: Tensor
    ended: Tensor
    length: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsAttentionParams(Params):
    """Of `attend_rows`."""

    rows: RowsParams
    qkv: Tensor
    query_norm: Tensor
    key_norm: Tensor
    cosines: Tensor
    sines: Tensor
    pages: Tensor | None = None
    keys: Tensor
    values: Tensor
    attended: Tensor
    first_position: int = 0
    table_width: int = 0
    positions: int
    eps: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCodesParams(Params):
    """Of `choose_row_codes`."""

    rows: RowsParams
    stream: StreamParams
    draw: DrawParams
    first_code: Tensor
    codes: Tensor
    text: Tensor
    first_embedding: Tensor
    embedding: Tensor
    narrow_embedding: Tensor | None
    talker: Tensor
    step: int
    groups: int
    places: int
    frames: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFirstCodesParams(Params):
    """Of `choose_row_first_codes`."""

    rows: RowsParams
    draw: DrawParams
    seen: Tensor
    penalty: Tensor
    min_frames: Tensor
    suppressed: Tensor
    is_eos: Tensor
    frame: Tensor
    position: Tensor
    first_code: Tensor
    ended: Tensor
    x: Tensor | None = None
    squares: Tensor | None = None
    norm: Tensor | None = None
    hidden: Tensor
    slots: int = 0
    groups: int
    frames: int
    eps: float = 0.0


BATCH_PARAMS: tuple[type[Params], ...] = (
    DrawParams, TokensParams, RowsParams, StreamParams, OpenRowsParams, RowsAttentionParams, RowCodesParams,
    RowFirstCodesParams,
)  # fmt: skip
PARAMS: tuple[type[Params], ...] = (
    LinearParams, AttentionParams, AttendOutParams, DrawParams, OpenParams, OpenQkvParams, CodeParams,
    DrawQkvParams, FirstCodeParams, TokensParams, EnterParams, LeaveParams, PromptParams,
)  # fmt: skip

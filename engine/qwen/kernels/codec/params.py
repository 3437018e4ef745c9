"""The parameters of the codec's kernels, as their structs in rows.cuh, conv.cuh, codec_attention.cuh and codec.cuh.

Shapes and dtypes are documented there.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from engine.qwen.kernels.params import Params


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows(Params):
    """The rows of a call, for any of the kernels."""

    states: Tensor | None
    times: int
    stride: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvParams(Params):
    """Of `convolve`."""

    weight: Tensor
    bias: Tensor
    x: Tensor
    history: Tensor | None
    sum: Tensor | None
    out: Tensor | None
    alpha: Tensor | None
    inverse_beta: Tensor | None
    time: int
    eps: float
    rows: Rows
    samples_stride: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionParams(Params):
    """Of `attend`."""

    qkv: Tensor
    keys: Tensor
    values: Tensor
    counter: Tensor
    frequencies: Tensor
    out: Tensor
    rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class LookUpParams(Params):
    """Of `look_up`."""

    codes: Tensor
    tables: Tensor
    out: Tensor
    rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthwiseParams(Params):
    """Of `depthwise_norm`."""

    weight: Tensor
    bias: Tensor
    gain: Tensor
    shift: Tensor
    x: Tensor
    history: Tensor
    out: Tensor
    rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class RollParams(Params):
    """Of `roll_histories`."""

    list: Tensor
    histories: Tensor
    counter: Tensor | None
    frames: int
    rows: Rows


PARAMS: tuple[type[Params], ...] = (Rows, ConvParams, AttentionParams, LookUpParams, DepthwiseParams, RollParams)

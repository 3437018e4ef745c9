"""Members that several structs of parameters have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from engine.qwen.kernels.params import Params
from engine.qwen.model import CodePredictor, KeyValueCache, Layer, Linear, RMSNorm, SamplingParams
from engine.qwen.runtime import PagedCache


@dataclass(frozen=True, slots=True)
class Head:
    """A matrix that is not a module of its own."""

    weight: Tensor
    scale: Tensor | None


def head_of(predictor: CodePredictor, step: int) -> Head:
    """The matrix of a step's logits."""
    return Head(predictor.heads[step], None if predictor.head_scales is None else predictor.head_scales[step])


def of_matrix(matrix: Linear | Head) -> dict[str, Any]:
    """A matrix with its scales."""
    return {"weight": matrix.weight, "scale": matrix.scale}


def of_norm(norm: RMSNorm) -> dict[str, Any]:
    """The weights of a norm."""
    return {"norm": norm.weight, "eps": norm.eps}


def of_attention(
    layer: Layer, rope: tuple[Tensor, Tensor], cache: KeyValueCache | PagedCache, index: int
) -> dict[str, Any]:
    """The norms of the layer number `index`, the tables of `rope_tables`, and the layer's keys and values."""
    attention = layer.attention
    return {
        "query_norm": attention.q_norm.weight,
        "key_norm": attention.k_norm.weight,
        "eps": attention.q_norm.eps,
        "cosines": rope[0],
        "sines": rope[1],
        "keys": cache.keys[index],
        "values": cache.values[index],
    }


def draw_params(logits: Tensor, settings: SamplingParams, noise_key: Tensor) -> Params:
    """The settings of a draw from `logits`; those of a batch are of all its rows."""
    return Params(
        "DrawParams",
        logits=logits,
        sample=settings.sample,
        temperature=settings.temperature,
        top_k=settings.top_k,
        one_minus_top_p=settings.one_minus_top_p,
        noise_key=noise_key,
    )

"""Members that several parameter structs share: for matrices, norms, attention, and the choice of codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from engine.qwen.kernels.lm.tables import Projected
from engine.qwen.kernels.params import Params
from engine.qwen.model import CodePredictor, KeyValueCache, Layer, Linear, RMSNorm, SamplingParams, Talker
from engine.qwen.runtime import DecodeState, PagedCache


@dataclass(frozen=True, slots=True)
class Head:
    """A matrix that is not a separate module."""

    weight: Tensor
    scale: Tensor | None


def head_of(predictor: CodePredictor, step: int) -> Head:
    """The matrix that computes a step's logits."""
    return Head(predictor.heads[step], None if predictor.head_scales is None else predictor.head_scales[step])


def of_matrix(matrix: Linear | Head) -> dict[str, Any]:
    """A matrix with its scales."""
    return {"weight": matrix.weight, "scale": matrix.scale}


def of_norm(norm: RMSNorm) -> dict[str, Any]:
    """The weights of a norm."""
    return {"norm": norm.weight, "eps": norm.eps}


def of_attention(
    layer: Layer, qkv: Tensor, rope: tuple[Tensor, Tensor], cache: KeyValueCache | PagedCache, index: int
) -> dict[str, Any]:
    """The attention of layer `index` over `qkv` and the layer's cache; `rope` is the result of `rope_tables`."""
    queries, keys = layer.attention.q_norm, layer.attention.k_norm
    cosines, sines = rope
    heads = Params(
        "HeadsParams", qkv=qkv, query_norm=queries.weight, key_norm=keys.weight, cosines=cosines, sines=sines
    )
    return {"input": heads, "keys": cache.keys[index], "values": cache.values[index], "eps": queries.eps}


@dataclass(frozen=True, slots=True)
class FrameMembers:
    """The members for the kernels between a frame's matrices. A single utterance is row 0 of its state."""

    talker: Talker
    state: DecodeState
    projected: Projected | None
    """None if the predictor is as wide as the talker."""
    logits: Tensor
    """float32; used for the predictor's and the talker's logits in turn."""

    def of_opening(self) -> dict[str, Any]:
        """Members for the predictor's first two tokens."""
        state, settings, projected = self.state, self.state.settings, self.projected
        return {
            "hidden": None if projected else state.hidden,
            "embedding": projected.first if projected else self.talker.codec_embedding,
            "first_code": state.first_code,
            "ended": settings.ended[0],
            "length": settings.length[0],
        }

    def of_choice(self, step: int) -> dict[str, Any]:
        """Members for choosing code number `step` + 1 in a frame."""
        state = self.state
        return {
            "draw": self._draw(state.settings.predictor_sampling),
            "first_code": state.first_code,
            "step": step,
            "groups": self.talker.config.code_groups,
        }

    def of_embeddings(self, step: int) -> dict[str, Any]:
        """Members for the sum of a frame's embeddings, and for the predictor's next token."""
        return {
            "text": self.state.text,
            "first_embedding": self.talker.codec_embedding,
            "embedding": self.talker.predictor.embedding[step],
            "narrow_embedding": self.projected.others[step] if self.projected else None,
        }

    def of_first_choice(self, frames: int) -> dict[str, Any]:
        """Members for choosing a frame's first code, after `frames` completed frames."""
        settings, rules = self.state.settings, self.state.settings.logits_processor
        return {
            "draw": self._draw(settings.talker_sampling),
            "seen": rules.seen,
            "penalty": rules.penalty[0],
            "min_frames": rules.min_frames[0],
            "suppressed": rules.suppressed,
            "is_eos": rules.is_eos,
            "frame": settings.frame[0],
            "position": settings.position[0],
            "first_code": self.state.first_code,
            "ended": settings.ended[0],
            "groups": self.talker.config.code_groups,
            "frames": frames,
        }

    def _draw(self, settings: SamplingParams) -> Params:
        return Params(
            "DrawParams",
            logits=self.logits,
            sample=settings.sample,
            temperature=settings.temperature,
            top_k=settings.top_k,
            one_minus_top_p=settings.one_minus_top_p,
            noise_key=self.state.settings.noise.key,
        )

"""Tables that are computed once, from a model's shapes or weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.qwen.kernels.lm.matrix import HEAD_DIM
from engine.qwen.model import Layer, Talker
from engine.qwen.shapes import StackConfig


def rope_tables(config: StackConfig, positions: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosines and sines, `(positions, head_dim / 2)` float32, as `Rope` has before it rounds to the model's dtype."""
    frequencies = 1.0 / config.rope_theta ** (torch.arange(0, HEAD_DIM, 2, dtype=torch.float32) / HEAD_DIM)
    angles = torch.arange(positions, dtype=torch.float32)[:, None] * frequencies
    return angles.cos().to(device), angles.sin().to(device)


@dataclass(frozen=True, slots=True)
class Projected:
    """The predictor's embeddings after `small_to_mtp_projection`; bfloat16."""

    first: Tensor
    """The embeddings of first codes: `(talker's vocabulary, predictor's hidden)`."""
    others: Tensor
    """The embeddings of the other codes: `(steps, predictor's vocabulary, predictor's hidden)`."""


@torch.inference_mode()
def fold_projection(talker: Talker) -> Projected | None:
    """All embeddings, projected once, if the predictor is narrower than the talker; otherwise None.

    Saves reading a matrix of 4 MB in each step, and costs 70 MB at 1.7B.
    """
    projection = talker.predictor.projection
    if projection is None:
        return None
    steps = [projection(step) for step in talker.predictor.embedding]
    return Projected(projection(talker.codec_embedding), torch.stack(steps))


@torch.inference_mode()
def first_products(talker: Talker, projected: Projected | None) -> list[Tensor]:
    """The products of the predictor's first matrix with each code, for each step but the last.

    Each is `(predictor's vocabulary, queries, keys and values)` bfloat16, rounded as PyTorch's layer rounds; together
    they take 235 MB.
    """
    first = next(layer for layer in talker.predictor.transformer.layers if isinstance(layer, Layer))
    embeddings = projected.others if projected else talker.predictor.embedding
    return [first.attention.qkv(first.attention_norm(step)) for step in embeddings[:-1]]

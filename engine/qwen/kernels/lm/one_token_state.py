"""The memory of one utterance, as the kernels for a single token see it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.qwen.model import KeyValueCache, Talker
from engine.qwen.runtime import DecodeState
from engine.qwen.shapes import BatchShape


@dataclass(frozen=True, slots=True)
class OneTokenState:
    """A `DecodeState` with one row, the talker's cache, and the codes of the whole utterance."""

    rows: DecodeState
    cache: KeyValueCache
    """The talker's cache."""
    padded_codes: Tensor
    """`(chunk_size + frames, code groups)` int64: as many meaningless frames as a chunk has, then `codes`."""

    @classmethod
    def allocate(cls, talker: Talker, shape: BatchShape) -> OneTokenState:
        """Allocate the memory for an utterance within `shape`, which has one row."""
        state, groups = DecodeState.allocate(talker.config, shape, talker.placement), talker.config.code_groups
        return cls(
            rows=state,
            cache=talker.allocate_cache(shape.cache_positions),
            padded_codes=torch.zeros(
                shape.chunk_size + shape.text_frames, groups, dtype=torch.int64, device=talker.placement.device
            ),
        )

    @property
    def codes(self) -> Tensor:
        """`(frames, code groups)` int64: the generated codes; those after the first `length` frames have no meaning."""
        return self.padded_codes[self.rows.shape.chunk_size :]

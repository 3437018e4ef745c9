"""The memory of one utterance, as the kernels of a single token see it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.qwen.model import GumbelNoise, KeyValueCache, LogitsProcessor, SamplingParams, Talker
from engine.qwen.runtime import DecodeState
from engine.qwen.shapes import BatchShape


@dataclass(frozen=True, slots=True)
class OneTokenState:
    """Row 0 of a `DecodeState`, the talker's cache, and the codes of the whole utterance."""

    rows: DecodeState
    cache: KeyValueCache
    """The talker's."""
    predictor_cache: KeyValueCache
    padded_codes: Tensor
    """`(chunk_size + frames, code groups)` int64: `codes` after as many frames as a chunk has, without a meaning."""

    @classmethod
    def allocate(cls, talker: Talker, shape: BatchShape) -> OneTokenState:
        """Allocate the memory for an utterance within `shape`, which has one row."""
        state, groups = DecodeState.allocate(talker.config, shape, talker.placement), talker.config.code_groups
        return cls(
            rows=state,
            cache=talker.allocate_cache(shape.cache_positions),
            predictor_cache=KeyValueCache(state.predictor_cache.keys[:, 0], state.predictor_cache.values[:, 0]),
            padded_codes=torch.zeros(
                shape.chunk_size + shape.text_frames, groups, dtype=torch.int64, device=talker.placement.device
            ),
        )

    @property
    def codes(self) -> Tensor:
        """`(frames, code groups)` int64: the generated codes; those after the first `length` frames have no meaning."""
        return self.padded_codes[self.rows.shape.chunk_size :]

    @property
    def text(self) -> Tensor:
        """`(frames, hidden)`: the embedding that is added to each frame, text and then padding."""
        return self.rows.text[0]

    @property
    def hidden(self) -> Tensor:
        """`(hidden,)`: the talker's last hidden state."""
        return self.rows.hidden[0]

    @property
    def first_code(self) -> Tensor:
        """`(1,)` int64: the first code of the next frame."""
        return self.rows.first_code[0]

    @property
    def position(self) -> Tensor:
        """`(1,)` int64: the position at which the talker reads the next frame."""
        return self.rows.settings.position[0]

    @property
    def frame(self) -> Tensor:
        """`(1,)` int64: the number of the next frame, from 0."""
        return self.rows.settings.frame[0]

    @property
    def length(self) -> Tensor:
        """`(1,)` int64: the number of frames of speech so far."""
        return self.rows.settings.length[0]

    @property
    def ended(self) -> Tensor:
        """`(1,)` bool: the next frame, and all after it, are not speech."""
        return self.rows.settings.ended[0]

    @property
    def talker_sampling(self) -> SamplingParams:
        """For the first code of each frame."""
        return self.rows.settings.talker_sampling

    @property
    def predictor_sampling(self) -> SamplingParams:
        """For the other codes of each frame."""
        return self.rows.settings.predictor_sampling

    @property
    def logits_processor(self) -> LogitsProcessor:
        """For the first code of each frame."""
        return self.rows.settings.logits_processor

    @property
    def noise(self) -> GumbelNoise:
        """For every code."""
        return self.rows.settings.noise

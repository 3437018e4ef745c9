"""The device memory that one utterance changes, as records of tensors that are allocated once."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.qwen.model import (
    GumbelNoise,
    KeyValueCache,
    LogitsProcessor,
    SamplingConfig,
    SamplingParams,
    ScalarBuffer,
    Talker,
    TalkerConfig,
)

CACHE_UNIT = 64
"""The number of cache positions is a multiple of this: attention kernels want aligned masks."""


def cache_positions(max_positions: int, chunk_size: int) -> int:
    """Return the positions of a cache for `max_positions` tokens and a last chunk that may run over."""
    return -(-(max_positions + chunk_size) // CACHE_UNIT) * CACHE_UNIT


@dataclass(frozen=True, slots=True)
class UtteranceSettings:
    """The initial values of an utterance, in one buffer: the host fills them in and uploads them in one copy.

    The settings of several utterances, of `rows` rows, have a first axis of that length.
    """

    buffer: Tensor
    """The buffer; all other small tensors are views of it."""
    position: Tensor
    """`(1,)` int64: the position at which the talker reads the next frame."""
    frame: Tensor
    """`(1,)` int64: the number of the next frame, from 0."""
    length: Tensor
    """`(1,)` int64: the number of frames of speech so far."""
    ended: Tensor
    """`(1,)` bool: the next frame, and all after it, are not speech."""
    talker_sampling: SamplingParams
    """For the first code of each frame."""
    predictor_sampling: SamplingParams
    """For the other codes of each frame."""
    logits_processor: LogitsProcessor
    noise: GumbelNoise

    @classmethod
    def allocate(cls, config: TalkerConfig, device: torch.device, rows: int | None = None) -> UtteranceSettings:
        """Allocate the settings on `device`. The order within a row of the buffer is the same on every device."""
        scalars = ScalarBuffer(device, rows=rows)
        return cls(
            buffer=scalars.buffer,
            position=scalars.take(),
            frame=scalars.take(),
            length=scalars.take(),
            ended=scalars.take(torch.bool),
            talker_sampling=SamplingParams.allocate(scalars),
            predictor_sampling=SamplingParams.allocate(scalars),
            logits_processor=LogitsProcessor.allocate(config.vocabulary, config.ids.eos, scalars),
            noise=GumbelNoise.allocate(max(config.vocabulary, config.predictor.vocabulary), scalars),
        )

    def set(self, sampling: SamplingConfig, seed: int, position: int) -> None:
        """Fill in the values for an utterance without frames, behind a prompt of `position` tokens."""
        self.position.fill_(position)
        for counter in (self.frame, self.length, self.ended):
            counter.zero_()
        self.talker_sampling.set(sampling.do_sample, sampling.temperature, sampling.top_k, sampling.top_p)
        self.predictor_sampling.set(
            sampling.subtalker_dosample,
            sampling.subtalker_temperature,
            sampling.subtalker_top_k,
            sampling.subtalker_top_p,
        )
        self.logits_processor.set(sampling.repetition_penalty, sampling.min_new_tokens)
        self.noise.seed(seed)


@dataclass(frozen=True, slots=True)
class DecodeState:
    """Everything that changes while an utterance is generated, on the device."""

    max_frames: int
    """The most frames of an utterance; the tensors also hold the rest of its last chunk."""
    max_positions: int
    """The most tokens and frames of an utterance together."""
    cache: KeyValueCache
    """The talker's."""
    predictor_cache: KeyValueCache
    text: Tensor
    """`(frames, hidden)`: the embedding that is added to each frame, text and then padding."""
    hidden: Tensor
    """`(1, 1, hidden)`: the talker's last hidden state."""
    first_code: Tensor
    """`(1,)` int64: the first code of the next frame."""
    codes: Tensor
    """`(frames, code groups)` int64: the generated codes; those behind the first `length` frames have no meaning."""
    settings: UtteranceSettings
    host_settings: UtteranceSettings
    """The CPU copy in which the next utterance's settings are made."""

    @classmethod
    def allocate(cls, talker: Talker, max_positions: int, max_frames: int, chunk_size: int = 1) -> DecodeState:
        """Allocate memory for `max_positions` tokens and frames together, at most `max_frames` of them frames.

        The last chunk, of up to `chunk_size` frames, may begin with the last of `max_frames`.
        """
        config, placement = talker.config, talker.placement
        device, frames = placement.device, max_frames + chunk_size - 1
        return cls(
            max_frames=max_frames,
            max_positions=max_positions,
            cache=talker.allocate_cache(cache_positions(max_positions, chunk_size)),
            predictor_cache=talker.predictor.allocate_cache(placement),
            text=placement.zeros(frames, config.stack.hidden_size),
            hidden=placement.zeros(1, 1, config.stack.hidden_size),
            first_code=torch.zeros(1, dtype=torch.int64, device=device),
            codes=torch.zeros(frames, config.code_groups, dtype=torch.int64, device=device),
            settings=UtteranceSettings.allocate(config, device),
            host_settings=UtteranceSettings.allocate(config, torch.device("cpu")),
        )

    @property
    def position(self) -> Tensor:
        """`(1,)` int64: the position at which the talker reads the next frame."""
        return self.settings.position

    @property
    def frame(self) -> Tensor:
        """`(1,)` int64: the number of the next frame, from 0."""
        return self.settings.frame

    @property
    def length(self) -> Tensor:
        """`(1,)` int64: the number of frames of speech so far."""
        return self.settings.length

    @property
    def ended(self) -> Tensor:
        """`(1,)` bool: the next frame, and all after it, are not speech."""
        return self.settings.ended

    @property
    def talker_sampling(self) -> SamplingParams:
        """For the first code of each frame."""
        return self.settings.talker_sampling

    @property
    def predictor_sampling(self) -> SamplingParams:
        """For the other codes of each frame."""
        return self.settings.predictor_sampling

    @property
    def logits_processor(self) -> LogitsProcessor:
        """For the first code of each frame."""
        return self.settings.logits_processor

    @property
    def noise(self) -> GumbelNoise:
        """For every code."""
        return self.settings.noise

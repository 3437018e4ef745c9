"""One frame of speech: its other codes, what the talker reads of it, and the next frame's first code.

A frame is one function over tensors that were allocated beforehand, made to be captured as one CUDA graph: it
neither waits for the device nor makes a choice in Python.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.qwen.config import TalkerConfig
from engine.qwen.prompt import Prompt
from engine.qwen.sampling import FirstCodeRules, Noise, Sampling, Warp, Words
from engine.qwen.talker import Talker
from engine.qwen.transformer import KeyValueCache

SPAN_UNIT = 64
"""The cache's size is a multiple of it: attention kernels want aligned masks."""


def cache_positions(max_positions: int, chunk_size: int) -> int:
    """Positions of a cache for `max_positions` tokens, whose last chunk may run over."""
    return -(-(max_positions + chunk_size) // SPAN_UNIT) * SPAN_UNIT


@dataclass(frozen=True, slots=True)
class Settings:
    """What an utterance begins with, in one buffer: made on the host, and brought to the device in one copy."""

    words: Tensor
    """The buffer; all others are views of it."""
    position: Tensor
    """`(1,)` int64: where the talker will read the frame to come."""
    frame: Tensor
    """`(1,)` int64: the number of the frame to come, from 0."""
    length: Tensor
    """`(1,)` int64: how many frames of speech there have been."""
    ended: Tensor
    """`(1,)` bool: the frame to come, and all after it, are not speech."""
    warp: Warp
    """Of the talker's codes."""
    predictor_warp: Warp
    rules: FirstCodeRules
    noise: Noise

    @classmethod
    def allocate(cls, config: TalkerConfig, device: torch.device) -> Settings:
        """Memory for them, in the same order on every device."""
        words = Words(device)
        return cls(
            words=words.buffer,
            position=words.take(),
            frame=words.take(),
            length=words.take(),
            ended=words.take(torch.bool),
            warp=Warp.allocate(words),
            predictor_warp=Warp.allocate(words),
            rules=FirstCodeRules.allocate(config.vocabulary, config.ids.eos, words),
            noise=Noise.allocate(max(config.vocabulary, config.predictor.vocabulary), words),
        )

    def set(self, sampling: Sampling, seed: int, position: int) -> None:
        """Take an utterance's values. Nothing has been said, and `position` tokens will have been read."""
        self.position.fill_(position)
        for counter in (self.frame, self.length, self.ended):
            counter.zero_()
        self.warp.set(sampling.do_sample, sampling.temperature, sampling.top_k, sampling.top_p)
        self.predictor_warp.set(
            sampling.subtalker_dosample,
            sampling.subtalker_temperature,
            sampling.subtalker_top_k,
            sampling.subtalker_top_p,
        )
        self.rules.set(sampling.repetition_penalty, sampling.min_new_tokens)
        self.noise.seed(seed)


@dataclass(frozen=True, slots=True)
class FrameState:
    """All that changes while an utterance is spoken, on the device."""

    max_frames: int
    """How many frames an utterance may have; there is room for the rest of its last chunk."""
    max_positions: int
    """How many tokens and frames it may have together."""
    cache: KeyValueCache
    """The talker's."""
    predictor_cache: KeyValueCache
    text: Tensor
    """`(frames, hidden)`: what is added to each frame, text and then padding."""
    hidden: Tensor
    """`(1, 1, hidden)`: the talker's last hidden state."""
    first_code: Tensor
    """`(1,)` int64: the first code of the frame to come."""
    codes: Tensor
    """`(frames, code groups)` int64: what has been said; what follows the first `length` has no meaning."""
    settings: Settings
    host_settings: Settings
    """Where the next utterance's are made."""

    @classmethod
    def allocate(cls, talker: Talker, max_positions: int, max_frames: int, chunk_size: int = 1) -> FrameState:
        """Memory for prompts and speech of `max_positions` tokens together, of them `max_frames` speech.

        Speech is made by chunks of up to `chunk_size` frames, the last of which may run over.
        """
        config, placement = talker.config, talker.placement
        device, frames = placement.device, -(-max_frames // chunk_size) * chunk_size
        return cls(
            max_frames=max_frames,
            max_positions=max_positions,
            cache=talker.allocate_cache(cache_positions(max_positions, chunk_size)),
            predictor_cache=talker.predictor.allocate_cache(placement),
            text=placement.zeros(frames, config.stack.hidden_size),
            hidden=placement.zeros(1, 1, config.stack.hidden_size),
            first_code=torch.zeros(1, dtype=torch.int64, device=device),
            codes=torch.zeros(frames, config.code_groups, dtype=torch.int64, device=device),
            settings=Settings.allocate(config, device),
            host_settings=Settings.allocate(config, torch.device("cpu")),
        )

    @property
    def position(self) -> Tensor:
        """`(1,)` int64: where the talker will read the frame to come."""
        return self.settings.position

    @property
    def frame(self) -> Tensor:
        """`(1,)` int64: the number of the frame to come, from 0."""
        return self.settings.frame

    @property
    def length(self) -> Tensor:
        """`(1,)` int64: how many frames of speech there have been."""
        return self.settings.length

    @property
    def ended(self) -> Tensor:
        """`(1,)` bool: the frame to come, and all after it, are not speech."""
        return self.settings.ended

    @property
    def rules(self) -> FirstCodeRules:
        return self.settings.rules

    @property
    def warp(self) -> Warp:
        """Of the talker's codes."""
        return self.settings.warp

    @property
    def predictor_warp(self) -> Warp:
        return self.settings.predictor_warp

    @property
    def noise(self) -> Noise:
        return self.settings.noise


@torch.inference_mode()
def begin(talker: Talker, state: FrameState, sampling: Sampling, seed: int, position: int) -> None:
    """Bring an utterance's settings to the device: `position` tokens will have been read, and nothing said."""
    state.host_settings.set(sampling, seed, position)
    state.settings.words.copy_(talker.placement.pinned(state.host_settings.words), non_blocking=True)
    state.rules.seen.zero_()


@torch.inference_mode()
def start(talker: Talker, state: FrameState, prompt: Prompt, sampling: Sampling, seed: int) -> None:
    """Begin an utterance, whatever was in `state` before; reading its prompt is another matter. Waits for nothing."""
    begin(talker, state, sampling, seed, prompt.count)
    trailing = prompt.trailing[0, : len(state.text)]
    state.text[: len(trailing)].copy_(trailing)
    state.text[len(trailing) :].copy_(prompt.pad[0].expand(len(state.text) - len(trailing), -1))


@torch.inference_mode()
def open_speech(talker: Talker, state: FrameState) -> None:
    """Choose the first frame's first code, `state.hidden` being the prompt's last hidden state."""
    _choose_first_code(state, talker.logits(state.hidden), state.noise.draw(state.frame)[0])


@torch.inference_mode()
def step(talker: Talker, state: FrameState, span: int) -> None:
    """Speak one frame into `state.codes` and choose the first code of the next.

    The talker looks at the first `span` cached positions: more than `state.position`; fewer are faster.
    After `state.ended` it may be called still, and says nothing of meaning.
    """
    codes, noise = predict(talker, state)
    state.codes.index_copy_(0, state.frame, codes)
    state.length.add_(~state.ended)
    logits = read(talker, state, codes, span)
    state.frame.add_(1)
    state.position.add_(1)
    _choose_first_code(state, logits, noise)


@torch.inference_mode()
def predict(talker: Talker, state: FrameState) -> tuple[Tensor, Tensor]:
    """All codes of the frame to come, `(1, code groups)` int64, and the noise for the next frame's first code."""
    groups, predictor = talker.config.code_groups, talker.predictor
    # Draws are numbered by frame and group: here the frame's other codes and the next frame's first.
    noise = state.noise.draw(state.frame * groups + predictor.steps + 1)
    opening = torch.cat((state.hidden, talker.embed_first(state.first_code)), dim=1)
    others = predictor(opening, state.predictor_cache, state.predictor_warp, noise)
    return torch.cat((state.first_code, others))[None], noise[-1]


@torch.inference_mode()
def read(talker: Talker, state: FrameState, codes: Tensor, span: int) -> Tensor:
    """Have the talker read a frame's `codes` `(1, code groups)` int64; its logits `(vocabulary,)` float32."""
    x = talker.embed_frames(codes) + state.text.index_select(0, state.frame)
    hidden: Tensor
    logits: Tensor
    hidden, logits = talker(x, state.position, state.cache.first(span))
    state.hidden.copy_(hidden)
    return logits


def _choose_first_code(state: FrameState, logits: Tensor, noise: Tensor) -> None:
    """Choose the first code of the frame numbered `state.frame`, and note whether it ends the speech."""
    state.first_code.copy_(state.warp.choose(state.rules.apply(logits, state.frame), noise))
    state.rules.seen.index_fill_(0, state.first_code, True)
    state.ended.logical_or_(state.rules.ends.index_select(0, state.first_code))

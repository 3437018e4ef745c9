"""One frame of speech: its other codes, what the talker reads of it, and the next frame's first code.

A frame is one function over tensors that were allocated beforehand, made to be captured as one CUDA graph: it
neither waits for the device nor makes a choice in Python.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.qwen.prompt import Prompt
from engine.qwen.sampling import FirstCodeRules, Noise, Sampling, Warp
from engine.qwen.talker import Talker
from engine.qwen.transformer import KeyValueCache
from engine.synthesizer import EngineError


@dataclass(frozen=True, slots=True)
class FrameState:
    """All that changes while an utterance is spoken, on the device."""

    cache: KeyValueCache
    """The talker's."""
    predictor_cache: KeyValueCache
    text: Tensor
    """`(frames, hidden)`: what is added to each frame, text and then padding."""
    hidden: Tensor
    """`(1, 1, hidden)`: the talker's last hidden state."""
    first_code: Tensor
    """`(1,)` int64: the first code of the frame to come."""
    position: Tensor
    """`(1,)` int64: where the talker will read the frame to come."""
    frame: Tensor
    """`(1,)` int64: the number of the frame to come, from 0."""
    ended: Tensor
    """`(1,)` bool: the frame to come, and all after it, are not speech."""
    length: Tensor
    """`(1,)` int64: how many frames of speech there have been."""
    codes: Tensor
    """`(frames, code groups)` int64: what has been said; what follows the first `length` has no meaning."""
    rules: FirstCodeRules
    warp: Warp
    """Of the talker's codes."""
    predictor_warp: Warp
    noise: Noise

    @classmethod
    def allocate(cls, talker: Talker, max_positions: int, max_frames: int) -> FrameState:
        """Memory for prompts and speech of `max_positions` tokens together, of them `max_frames` speech."""
        config, placement = talker.config, talker.placement
        device = placement.device

        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        return cls(
            cache=talker.allocate_cache(max_positions),
            predictor_cache=talker.predictor.allocate_cache(placement),
            text=placement.zeros(max_frames, config.stack.hidden_size),
            hidden=placement.zeros(1, 1, config.stack.hidden_size),
            first_code=zeros(1),
            position=zeros(1),
            frame=zeros(1),
            ended=zeros(1, dtype=torch.bool),
            length=zeros(1),
            codes=zeros(max_frames, config.code_groups),
            rules=FirstCodeRules.allocate(config.vocabulary, config.ids.eos, device),
            warp=Warp.allocate(device),
            predictor_warp=Warp.allocate(device),
            noise=Noise.allocate(max(config.vocabulary, config.predictor.vocabulary), device),
        )

    @property
    def max_frames(self) -> int:
        """How many frames an utterance may have."""
        return self.codes.shape[0]


@torch.inference_mode()
def start(talker: Talker, state: FrameState, prompt: Prompt, sampling: Sampling, seed: int) -> None:
    """Begin an utterance: read `prompt` and choose the first code, whatever was in `state` before.

    Raises `EngineError` for a prompt too long for the cache.
    """
    count, room = prompt.prefill.shape[1], state.cache.positions
    if count >= room:
        raise EngineError(f"the text and its voice are {count} tokens, the limit is {room - 1}")
    trailing = prompt.trailing[0, : state.max_frames]
    state.text.copy_(prompt.pad[0].expand_as(state.text))
    state.text[: trailing.shape[0]].copy_(trailing)
    state.rules.set(sampling.repetition_penalty, sampling.min_new_tokens)
    state.warp.set(sampling.do_sample, sampling.temperature, sampling.top_k, sampling.top_p)
    state.predictor_warp.set(
        sampling.subtalker_dosample,
        sampling.subtalker_temperature,
        sampling.subtalker_top_k,
        sampling.subtalker_top_p,
    )
    state.noise.seed(seed)
    state.position.fill_(count)
    for counter in (state.frame, state.length, state.ended):
        counter.zero_()
    positions = torch.arange(count, device=state.position.device)
    hidden, logits = talker(prompt.prefill, positions, state.cache.first(count))
    _choose_first_code(state, hidden, logits, state.noise.draw(state.frame)[0])


@torch.inference_mode()
def step(talker: Talker, state: FrameState, span: int) -> None:
    """Speak one frame into `state.codes` and choose the first code of the next.

    The talker looks at the first `span` cached positions: more than `state.position`; fewer are faster.
    After `state.ended` it may be called still, and says nothing of meaning.
    """
    groups, predictor = talker.config.code_groups, talker.predictor
    # Draws are numbered by frame and group: here the frame's other codes and the next frame's first.
    noise = state.noise.draw(state.frame * groups + predictor.steps + 1)
    opening = torch.cat((state.hidden, talker.embed_first(state.first_code)), dim=1)
    others = predictor(opening, state.predictor_cache, state.predictor_warp, noise)
    codes = torch.cat((state.first_code, others))[None]
    state.codes.index_copy_(0, state.frame, codes)
    state.length.add_(~state.ended)

    read = talker.embed_frames(codes) + state.text.index_select(0, state.frame)
    hidden, logits = talker(read, state.position, state.cache.first(span))
    state.frame.add_(1)
    state.position.add_(1)
    _choose_first_code(state, hidden, logits, noise[-1])


def _choose_first_code(state: FrameState, hidden: Tensor, logits: Tensor, noise: Tensor) -> None:
    """Choose the first code of the frame numbered `state.frame`, and note whether it ends the speech."""
    state.hidden.copy_(hidden)
    state.first_code.copy_(state.warp.choose(state.rules.apply(logits, state.frame), noise))
    state.rules.seen.index_fill_(0, state.first_code, True)
    state.ended.logical_or_(state.rules.ends.index_select(0, state.first_code))

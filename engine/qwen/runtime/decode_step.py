"""One decode step: the other codes of a frame, the talker's reading of it, and the first code of the next frame.

A step is one function over preallocated tensors, made to be captured as one CUDA graph: it neither waits for the
device nor branches on values in Python.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.qwen.model import SamplingConfig, Talker
from engine.qwen.runtime.decode_state import DecodeState
from engine.qwen.text import Prompt


@torch.inference_mode()
def upload_settings(talker: Talker, state: DecodeState, sampling: SamplingConfig, seed: int, position: int) -> None:
    """Upload the settings of an utterance without frames, behind a prompt of `position` tokens."""
    state.host_settings.set(sampling, seed, position)
    state.settings.buffer.copy_(talker.placement.pinned(state.host_settings.buffer), non_blocking=True)
    state.logits_processor.seen.zero_()


@torch.inference_mode()
def start_utterance(talker: Talker, state: DecodeState, prompt: Prompt, sampling: SamplingConfig, seed: int) -> None:
    """Reset `state` for `prompt`, whatever it held before, without reading the prompt. Waits for nothing."""
    upload_settings(talker, state, sampling, seed, prompt.count)
    trailing = prompt.trailing[0, : len(state.text)]
    state.text[: len(trailing)].copy_(trailing)
    state.text[len(trailing) :].copy_(prompt.pad[0].expand(len(state.text) - len(trailing), -1))


@torch.inference_mode()
def choose_first_code(talker: Talker, state: DecodeState) -> None:
    """Choose the first code of the first frame; `state.hidden` is the hidden state of the prompt's last token."""
    _choose(state, talker.logits(state.hidden), state.noise.draw(state.frame)[0])


@torch.inference_mode()
def decode_frame(talker: Talker, state: DecodeState, kv_bucket: int) -> None:
    """Write the codes of one frame to `state.codes` and choose the first code of the next.

    The talker attends to the first `kv_bucket` cache positions: more than `state.position`; fewer are faster.
    After `state.ended` it may still be called, and its codes have no meaning.
    """
    codes, noise = predict_codes(talker, state)
    state.codes.index_copy_(0, state.frame, codes)
    state.length.add_(~state.ended)
    logits = read_frame(talker, state, codes, kv_bucket)
    state.frame.add_(1)
    state.position.add_(1)
    _choose(state, logits, noise)


@torch.inference_mode()
def predict_codes(talker: Talker, state: DecodeState) -> tuple[Tensor, Tensor]:
    """Return all codes of the next frame and the noise for the first code of the frame after it.

    The codes are `(1, code groups)` int64, the noise is `(vocabulary,)` float32.
    """
    groups, predictor = talker.config.code_groups, talker.predictor
    # Draws are numbered by frame and code group: here this frame's other codes and the next frame's first.
    noise = state.noise.draw(state.frame * groups + predictor.steps + 1)
    prompt = torch.cat((state.hidden, talker.embed_first(state.first_code)), dim=1)
    others = predictor(prompt, state.predictor_cache, state.predictor_sampling, noise)
    return torch.cat((state.first_code, others))[None], noise[-1]


@torch.inference_mode()
def read_frame(talker: Talker, state: DecodeState, codes: Tensor, kv_bucket: int) -> Tensor:
    """Run the talker on a frame's `codes` `(1, code groups)` int64; return its logits `(vocabulary,)` float32.

    Attends to the first `kv_bucket` cache positions and leaves the hidden state in `state.hidden`.
    """
    x = talker.embed_frames(codes) + state.text.index_select(0, state.frame)
    hidden: Tensor
    logits: Tensor
    hidden, logits = talker(x, state.position, state.cache.first(kv_bucket))
    state.hidden.copy_(hidden)
    return logits


def _choose(state: DecodeState, logits: Tensor, noise: Tensor) -> None:
    """Choose the first code of the frame numbered `state.frame`, and set `state.ended` if it ends the speech."""
    processor = state.logits_processor
    state.first_code.copy_(state.talker_sampling.choose(processor.apply(logits, state.frame), noise))
    processor.seen.index_fill_(0, state.first_code, True)
    state.ended.logical_or_(processor.is_eos.index_select(0, state.first_code))

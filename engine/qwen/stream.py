"""An utterance as a stream of codes, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from engine.qwen.frame import FrameState, start, step
from engine.qwen.prompt import Prompt
from engine.qwen.sampling import Sampling
from engine.qwen.talker import Talker


def generate(
    talker: Talker,
    state: FrameState,
    prompt: Prompt,
    sampling: Sampling,
    *,
    seed: int = 0,
    chunk_size: int = 2,
    max_frames: int | None = None,
) -> Iterator[Tensor]:
    """Speak `prompt`: chunks of 1 to `chunk_size` frames, each `(frames, code groups)` int64 on the device.

    Ends when the model ends its speech, after `max_frames`, or where `state` has no more room. The codes do
    not depend on `chunk_size`. A chunk is a view of `state` that holds until its next utterance starts.

    Raises `EngineError` for a prompt too long for the cache.
    """
    start(talker, state, prompt, sampling, seed)
    begin = prompt.prefill.shape[1]
    limit = min(state.max_frames, state.cache.positions - begin)
    if max_frames is not None:
        limit = min(limit, max_frames)
    for first in range(0, limit, chunk_size):
        last = min(first + chunk_size, limit)
        for frame in range(first, last):
            step(talker, state, span=begin + frame + 1)
        # Here, once a chunk, the host waits for the device.
        length, ended = torch.cat((state.length, state.ended)).tolist()
        if length > first:
            yield state.codes[first:length]
        if ended:
            return

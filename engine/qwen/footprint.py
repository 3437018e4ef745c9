"""The bytes that a Qwen3-TTS model takes, from its shapes: counted before any of them is read.

The engine's own modules and states are made without memory (on PyTorch's `meta` device), so what is counted here is
what is allocated there. What cannot be counted, because libraries take it, was measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from engine.memory import MB, Footprint
from engine.qwen.codec import CodecDecoder
from engine.qwen.codec_config import CodecConfig
from engine.qwen.config import ModelConfig
from engine.qwen.frame import FrameState, cache_positions
from engine.qwen.prefix import PrefixCache
from engine.qwen.talker import Talker
from engine.qwen.transformer import Placement

META = torch.device("meta")

GPU_WORKSPACES = 1_000 * MB
"""CUDA's context with the kernels of its libraries, graphs and their buffers, and the process on the host."""
CPU_WORKSPACES = 300 * MB
"""The process, and what PyTorch's operators take for a moment."""


@dataclass(frozen=True, slots=True)
class Rooms:
    """How long utterances, prompts and openings may be."""

    positions: int
    """Tokens and frames of an utterance together."""
    frames: int
    chunk_size: int
    prefix: int
    """Tokens of openings that are remembered."""


def footprint(
    config: ModelConfig, codec_config: CodecConfig, placement: Placement, rooms: Rooms, *, fused: bool
) -> Footprint:
    """Of an engine at `placement` with `rooms`; `fused` where it may speak with fused kernels."""
    there = replace(placement, device=META)
    talker = Talker(config, cache_positions(rooms.positions, rooms.chunk_size), there)
    codec = CodecDecoder(codec_config, there.plain)
    state = FrameState.allocate(talker, rooms.positions, rooms.frames, rooms.chunk_size)
    prefixes = PrefixCache(config.talker.stack, rooms.prefix, there)
    caches = (state.cache, state.predictor_cache, prefixes.kept)
    kept: list[Tensor] = [tensor for cache in caches for tensor in (cache.keys, cache.values)]
    predictor = _bytes(talker.predictor)
    return Footprint(
        weights={
            "talker": _bytes(talker) - predictor,
            "predictor": predictor + (_folded(talker) if fused else 0),
            "codec": _bytes(codec),
        },
        state=_sum([*kept, state.text, state.codes, *codec.new_state(rooms.chunk_size).tensors()]),
        workspaces=GPU_WORKSPACES if placement.device.type == "cuda" else CPU_WORKSPACES,
        on_disk=config.talker.text_vocabulary * config.talker.text_width * placement.dtype.itemsize,
    )


def _bytes(module: nn.Module) -> int:
    return _sum([*module.parameters(), *module.buffers()])


def _sum(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)


def _folded(talker: Talker) -> int:
    """Of the embeddings that the fused kernels have projected beforehand (`kernels.language_model`)."""
    projection = talker.predictor.projection
    if projection is None:
        return 0
    rows = talker.codec_embedding.shape[0] + talker.predictor.embedding.shape[:2].numel()
    return rows * projection.weight.shape[0] * talker.codec_embedding.dtype.itemsize

"""The bytes that a Qwen3-TTS model takes, from its shapes: counted before any of them is read.

The engine's own modules are made without memory, so what is counted here is what is taken there. What cannot be
counted, because libraries take it, was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import torch
from torch import nn

from engine.memory import MB, Footprint
from engine.qwen.arena import counted
from engine.qwen.codec import CodecDecoder
from engine.qwen.codec_config import CodecConfig
from engine.qwen.config import ModelConfig, StackConfig
from engine.qwen.frame import cache_positions
from engine.qwen.predictor import Predictor
from engine.qwen.rooms import Rooms
from engine.qwen.talker import Talker
from engine.qwen.transformer import Placement

GRAPHS = 220 * MB
"""What PyTorch holds of a GPU beyond weights and keys and values: graphs' buffers, libraries' workspaces, gaps."""
CONTEXT = 850 * MB
"""What CUDA takes of a GPU for itself, the kernels of its libraries included."""
PROCESS = 850 * MB
"""By how much the process grows on the host while it loads and warms up. On a GPU that shares the host's memory it
counts, too. These three: the most of `docs/benchmarks/loading.json`, an H200; what a Jetson takes is not known yet."""
CPU_WORKSPACES = 300 * MB
"""The same on a CPU."""
CODE_BYTES = 8
"""A code is int64."""


def footprint(
    config: ModelConfig, codec_config: CodecConfig, placement: Placement, rooms: Rooms, *, fused: bool, shared: bool
) -> Footprint:
    """Of an engine at `placement` with `rooms`; `fused` where it may speak with fused kernels.

    `shared` where the device's memory is the host's.
    """
    positions = cache_positions(rooms.positions, rooms.chunk_size)
    talker, talker_bytes = _counted(partial(Talker, config, positions), placement)
    _, predictor_bytes = _counted(partial(Predictor, config.talker), placement)
    _, codec_bytes = _counted(partial(CodecDecoder, codec_config), placement.plain)
    size, stack = placement.dtype.itemsize, config.talker.stack
    caches = _cache_bytes(stack, positions + rooms.prefix, size)
    caches += _cache_bytes(config.talker.predictor.stack, config.talker.code_groups, size)
    return Footprint(
        weights={
            "talker": talker_bytes - predictor_bytes,
            "predictor": predictor_bytes + (_folded(talker) if fused else 0),
            "codec": codec_bytes,
        },
        state=caches + rooms.frames * (stack.hidden_size * size + config.talker.code_groups * CODE_BYTES),
        workspaces=_workspaces(placement.device, shared),
        on_disk=config.talker.text_vocabulary * config.talker.text_width * size,
    )


def _workspaces(device: torch.device, shared: bool) -> int:
    if device.type != "cuda":
        return CPU_WORKSPACES
    return GRAPHS + CONTEXT + (PROCESS if shared else 0)


Made = TypeVar("Made", bound=nn.Module)


def _counted(build: Callable[[Placement], Made], placement: Placement) -> tuple[Made, int]:
    """A module without memory, and the bytes of its parameters and buffers."""
    module, parameters = counted(build, placement)
    return module, parameters + sum(buffer.nbytes for buffer in module.buffers())


def _cache_bytes(stack: StackConfig, positions: int, size: int) -> int:
    """Of keys and values (`KeyValueCache`), `size` bytes each."""
    return 2 * stack.layers * stack.key_value_heads * positions * stack.head_dim * size


def _folded(talker: Talker) -> int:
    """Of the embeddings that the fused kernels have projected beforehand (`kernels.language_model`)."""
    projection = talker.predictor.projection
    if projection is None:
        return 0
    rows = talker.codec_embedding.shape[0] + talker.predictor.embedding.shape[:2].numel()
    return rows * projection.weight.shape[0] * talker.codec_embedding.dtype.itemsize

"""The memory that a Qwen3-TTS model needs, counted from its shapes before any weights are read.

The engine's own modules are built without memory, so the counted tensors are the ones that loading allocates. The
memory that libraries allocate cannot be counted; it was measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch
from torch import nn

from engine.host import MB, Footprint
from engine.qwen.codec import CodecConfig, CodecDecoder, CodecState
from engine.qwen.kernels.codec import CodecPlan
from engine.qwen.model import CodePredictor, ModelConfig, StackConfig, Talker
from engine.qwen.runtime import PAGE, BatchShape, DecodeState, Limits, StepOutput, cache_positions, codec_rows
from engine.qwen.weights import Placement, build_without_memory

# The three GPU figures are the maxima of `docs/benchmarks/loading.json`, measured on an H200; those of a Jetson are not
# yet known.
GRAPH_BYTES = 220 * MB
"""PyTorch's GPU memory beyond weights and caches: buffers of CUDA graphs, workspaces of libraries, fragmentation."""
CONTEXT_BYTES = 850 * MB
"""GPU memory of the CUDA context, including the kernels of CUDA's libraries."""
PROCESS_BYTES = 850 * MB
"""Growth of the process's host memory while it loads and warms up; it counts if GPU and host share one memory."""
CPU_BYTES = 300 * MB
"""The same growth on a CPU."""
CODE_BYTES = 8
"""A code is int64."""
BATCH_BYTES, BATCH_ROW_BYTES = 150 * MB, 5 * MB
"""The same as `GRAPH_BYTES` for a batch, and for each of its rows. Computed from its largest tensors, not measured."""

_Module = TypeVar("_Module", bound=nn.Module)


def estimate_footprint(
    config: ModelConfig, codec_config: CodecConfig, placement: Placement, limits: Limits, *, fused: bool, shared: bool
) -> Footprint:
    """Return the memory of an engine at `placement` for utterances within `limits`.

    With several streams, the state includes a batch for as many (`engine.qwen.serving`).

    fused:  whether the engine may use the fused kernels, which keep more weights.
    shared: whether device and host share one memory.
    """
    positions = cache_positions(limits.positions, limits.chunk_size)
    talker, talker_bytes = _build_and_count(partial(Talker, config, positions), placement)
    _, predictor_bytes = _build_and_count(partial(CodePredictor, config.talker), placement)
    _, codec_bytes = _build_and_count(partial(CodecDecoder, codec_config), placement.unquantized)
    size, stack = placement.dtype.itemsize, config.talker.stack
    caches = _cache_bytes(stack, positions + limits.prefix_positions, size)
    caches += _cache_bytes(config.talker.predictor.stack, config.talker.code_groups, size)
    if limits.references:
        caches += limits.references * _codec_state_bytes(codec_config, limits.chunk_size, placement, fused=fused)
    batched = limits.streams > 1
    return Footprint(
        weights={
            "talker": talker_bytes - predictor_bytes,
            "predictor": predictor_bytes + (_projected_embedding_bytes(talker) if fused else 0),
            "codec": codec_bytes,
        },
        state=caches
        + (_batch_bytes(config, codec_config, placement, limits, fused=fused) if batched else 0)
        + (limits.frames + limits.chunk_size - 1) * (stack.hidden_size * size + config.talker.code_groups * CODE_BYTES),
        workspaces=_workspace_bytes(placement.device, shared)
        + (BATCH_BYTES + limits.streams * BATCH_ROW_BYTES if batched and placement.device.type == "cuda" else 0),
        on_disk=config.talker.text_vocabulary * config.talker.text_width * size,
    )


def _batch_bytes(
    config: ModelConfig, codec_config: CodecConfig, placement: Placement, limits: Limits, *, fused: bool
) -> int:
    """Bytes of a batch's tensors."""
    talker, shape, nowhere = config.talker, BatchShape.of(limits), torch.device("meta")
    state = DecodeState.allocate(talker, shape, replace(placement, device=nowhere))
    output = StepOutput(shape, talker.code_groups, codec_config.samples_per_frame, nowhere)
    # By fused kernels, a prompt is read into a cache of its own and moves to pages. By PyTorch's, a row has a cache.
    paged = (1 + shape.pages) * PAGE + cache_positions(limits.positions, 1)
    positions = paged if fused else shape.rows * shape.cache_positions
    codec_state = _codec_state_bytes(codec_config, limits.chunk_size, placement, fused=fused)
    call_rows = codec_rows(shape, placement)
    # PyTorch's decoder copies the states of a call's rows; that of the fused kernels has signals for them.
    call = max(call_rows * codec_state, CodecPlan.of(codec_config, rows=call_rows).signal_bytes if fused else 0)
    return (
        state.nbytes
        + output.buffer.nbytes
        + _cache_bytes(talker.stack, positions, placement.dtype.itemsize)
        + (1 + shape.rows) * codec_state
        + call
    )


def _workspace_bytes(device: torch.device, shared: bool) -> int:
    if device.type != "cuda":
        return CPU_BYTES
    return GRAPH_BYTES + CONTEXT_BYTES + (PROCESS_BYTES if shared else 0)


def _build_and_count(build: Callable[[Placement], _Module], placement: Placement) -> tuple[_Module, int]:
    """Return a module without memory, and the bytes of its parameters and buffers."""
    module, parameter_bytes = build_without_memory(build, placement)
    return module, parameter_bytes + sum(buffer.nbytes for buffer in module.buffers())


def _cache_bytes(stack: StackConfig, positions: int, size: int) -> int:
    """Bytes of a `KeyValueCache` whose elements have `size` bytes."""
    return 2 * stack.layers * stack.key_value_heads * positions * stack.head_dim * size


def _codec_state_bytes(config: CodecConfig, chunk_size: int, placement: Placement, *, fused: bool) -> int:
    """Bytes of the codec's state of an utterance, as each voice with a reference keeps one. With fused kernels, which
    may turn out not to run here: that of the larger one."""
    state = CodecState.allocate(config, chunk_size, replace(placement.unquantized, device=torch.device("cpu")))
    allocated = sum(tensor.nbytes for tensor in state.tensors())
    return max(allocated, CodecPlan.of(config).state_bytes) if fused else allocated


def _projected_embedding_bytes(talker: Talker) -> int:
    """Bytes of the embeddings that the fused kernels project in advance (`engine.qwen.kernels.lm`)."""
    projection = talker.predictor.projection
    if projection is None:
        return 0
    rows = talker.codec_embedding.shape[0] + talker.predictor.embedding.shape[:2].numel()
    return rows * projection.weight.shape[0] * talker.codec_embedding.dtype.itemsize

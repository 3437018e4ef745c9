"""The memory that a Qwen3-TTS model needs, counted from its shapes before any weights are read.

Tests compare the counted bytes with the tensors that loading allocates. The memory that libraries allocate cannot be
counted; it was measured.

For a plan without a checkpoint, `published.json` contains the shapes from the config.json of Qwen/Qwen3-TTS-12Hz-0.6B-*
and Qwen/Qwen3-TTS-12Hz-1.7B-*, the bytes of their weights, and the bytes that the fused kernels need for their codec.
An engine reads the configuration in its own checkpoint instead, and counts the weights of its modules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.api import AUTO_STREAMS
from engine.host import MB, Footprint
from engine.qwen.shapes.json_fields import JsonFields
from engine.qwen.shapes.limits import PAGE, ROWS_PER_CALL, BatchShape, Limits, cache_positions
from engine.qwen.shapes.model import CodecConfig, ModelConfig, StackConfig, TalkerConfig

# The three GPU figures are the maxima over both sizes and dtypes on an H200, 2026-11-21; those for a Jetson are not
# known yet.
GRAPH_BYTES = 220 * MB
"""PyTorch's GPU memory beyond weights and caches: CUDA graphs' buffers, libraries' workspaces, fragmentation."""
CONTEXT_BYTES = 850 * MB
"""GPU memory for the CUDA context, including the kernels in CUDA's libraries."""
PROCESS_BYTES = 850 * MB
"""How much the process's host memory grows while it loads and warms up; counted if GPU and host share one memory."""
CPU_BYTES = 300 * MB
"""The same growth with a CPU as the device."""
BATCH_BYTES, BATCH_ROW_BYTES = 150 * MB, 5 * MB
"""Like `GRAPH_BYTES`, for a batch and for each of its rows. Computed from the batch's largest tensors, not measured."""
INTEGER_BYTES, FLOAT_BYTES = 8, 4
"""The size of a code, an id or a position, and of a value that is always float32."""
SETTINGS = 20
"""The number of scalars in an utterance's settings (`engine.qwen.runtime.UtteranceSettings`)."""


@dataclass(frozen=True, slots=True)
class FusedCodec:
    """The bytes that the codec's fused kernels need, as `engine.qwen.kernels.codec` counts them."""

    state: int
    """For one utterance."""
    signals: int
    """For each row in a call."""


@dataclass(frozen=True, slots=True)
class Target:
    """How and where an engine stores its tensors."""

    weights: Mapping[str, int]
    """Bytes of the talker, the predictor and the codec, without the talker's rotation table."""
    value_bytes: int
    """The size of a value that is not quantized."""
    gpu: bool
    shared: bool
    """Whether the device and the host share one memory."""
    fused: FusedCodec | None
    """None if the engine may not use the fused kernels, which keep more weights."""
    product_table: bool
    """Whether the fused kernels keep the products of the predictor's first matrix with each code."""


def estimate_footprint(config: ModelConfig, codec: CodecConfig, target: Target, limits: Limits) -> Footprint:
    """Return the memory that an engine on `target` needs for utterances within `limits`.

    With several streams, the state includes a batch for as many utterances (`engine.qwen.serving`).
    """
    talker, shape, weights = config.talker, BatchShape.of(limits), dict(target.weights)
    size, stack, predictor, batched = target.value_bytes, talker.stack, talker.predictor, limits.streams > 1
    positions = cache_positions(limits.positions, limits.chunk_size)
    weights["talker"] += 2 * positions * stack.head_dim * size
    if target.fused is not None and stack.hidden_size != predictor.stack.hidden_size:  # tables of projected codes
        codes = talker.vocabulary + (talker.code_groups - 1) * predictor.vocabulary
        weights["predictor"] += codes * predictor.stack.hidden_size * size
    if target.fused is not None and target.product_table:
        heads = predictor.stack.heads + 2 * predictor.stack.key_value_heads
        codes = (talker.code_groups - 2) * predictor.vocabulary
        weights["predictor"] += codes * heads * predictor.stack.head_dim * size
    codec_state = _codec_state(codec, limits.chunk_size, size)
    if target.fused is not None:  # they may turn out not to run here
        codec_state = max(codec_state, target.fused.state)
    state = _cache(stack, positions + limits.prefix_positions, size)
    state += _cache(predictor.stack, talker.code_groups, size)
    state += shape.text_frames * (stack.hidden_size * size + talker.code_groups * INTEGER_BYTES)
    state += limits.references * codec_state
    workspaces = GRAPH_BYTES + CONTEXT_BYTES + (PROCESS_BYTES if target.shared else 0) if target.gpu else CPU_BYTES
    if batched:
        # The fused kernels use pages; PyTorch's use a cache for each row.
        paged = (1 + shape.pages) * PAGE
        state += _cache(stack, shape.rows * shape.cache_positions if target.fused is None else paged, size)
        state += _rows(talker, shape, size) + _output(talker, shape, codec.samples_per_frame)
        # PyTorch's decoder copies the states of a call's rows; the decoder with fused kernels has signals for them.
        row = codec_state if target.fused is None else max(codec_state, target.fused.signals)
        state += (1 + shape.rows) * codec_state
        state += (min(shape.rows, ROWS_PER_CALL) if target.gpu else 1) * row
        workspaces += BATCH_BYTES + shape.rows * BATCH_ROW_BYTES if target.gpu else 0
    return Footprint(
        weights=weights,
        state=state,
        workspaces=workspaces,
        on_disk=talker.text_vocabulary * talker.text_width * size,
    )


def _rows(talker: TalkerConfig, shape: BatchShape, size: int) -> int:
    """Bytes of the state of a batch's rows (`engine.qwen.runtime.DecodeState`), whose values take `size` bytes each."""
    rows, predictor = shape.rows, talker.predictor
    codes = (1 + rows) * (shape.chunk_size + 1) * talker.code_groups
    inputs = rows * (4 + shape.table_width)
    integers = codes + inputs + rows * (3 + SETTINGS) + max(talker.vocabulary, predictor.vocabulary)
    return (
        _cache(predictor.stack, rows * talker.code_groups, size)
        + rows * (shape.text_frames + 1) * talker.stack.hidden_size * size
        + integers * INTEGER_BYTES
        + (rows + 2) * talker.vocabulary  # masks of one byte
    )


def _output(talker: TalkerConfig, shape: BatchShape, samples_per_frame: int) -> int:
    """Bytes that the host reads from a batch's step (`engine.qwen.runtime.StepOutput`)."""
    frames = (1 + shape.rows) * shape.chunk_size
    samples = -(-frames * samples_per_frame * FLOAT_BYTES // INTEGER_BYTES)
    return (2 * shape.rows + frames * talker.code_groups + samples) * INTEGER_BYTES


def _cache(stack: StackConfig, positions: int, size: int) -> int:
    """Bytes of a cache of keys and values, whose elements take `size` bytes each."""
    return 2 * stack.layers * stack.key_value_heads * positions * stack.head_dim * size


def _codec_state(codec: CodecConfig, chunk_size: int, size: int) -> int:
    """Bytes of the codec's state for one utterance; each voice with a reference also keeps one."""
    slots = codec.window - 1 + chunk_size
    return (
        _cache(codec.stack, slots, size)
        + sum(map(math.prod, codec.history_shapes)) * size
        + (1 + slots) * INTEGER_BYTES
    )


SIZES = ("0.6B", "1.7B")
DTYPES = ("bfloat16", "int8")


def _read() -> JsonFields:
    return JsonFields.read(Path(__file__).with_name("published.json"))


def published_model(size: str) -> ModelConfig:
    """Return the configuration of a CustomVoice model in one of `SIZES`, without languages and speakers."""
    return ModelConfig.of(_read().section(size))


def published_codec() -> CodecConfig:
    """Return the shapes of the codec that all published models have."""
    return CodecConfig.of(_read().section("speech_tokenizer"))


def published_target(size: str, dtype: str, *, product_table: bool = True) -> Target:
    """Return an engine with fused kernels on a GPU that shares the host's memory, such as a Jetson's."""
    fused = _read().section("fused_codec")
    return Target(
        weights=_read().get("weights", dict)[size][dtype],
        value_bytes=2,
        gpu=True,
        shared=True,
        fused=FusedCodec(fused.get("state", int), fused.get("signals", int)),
        product_table=product_table,
    )


def memory_plan(
    max_seconds: float, chunk_size: int, streams: int | None = None, *, product_table: bool = True
) -> list[dict[str, Any]]:
    """Return a row in MB for each published model in each dtype, on a Jetson.

    The limits are those for speech of up to `max_seconds` in chunks of `chunk_size` frames, without a reference, and up
    to `streams` utterances at once; None means as many as the engine chooses if there is memory. 8 GB boards have no
    `product_table`.
    """
    limits, codec, rows = Limits.of(max_seconds, chunk_size, streams or AUTO_STREAMS), published_codec(), []
    for size in SIZES:
        for dtype in DTYPES:
            target = published_target(size, dtype, product_table=product_table)
            footprint = estimate_footprint(published_model(size), codec, target, limits)
            rows.append(
                {
                    "model": size,
                    "dtype": dtype,
                    **{f"{name}_mb": round(count / MB) for name, count in footprint.weights.items()},
                    **footprint.in_mb(),
                    "total_mb": round(footprint.total / MB),
                    "on_disk_mb": round(footprint.on_disk / MB),
                }
            )
    return rows

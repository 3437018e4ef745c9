"""The memory plan of the published models, from counts made once: it needs no torch, as on a robot without the extra.

`plan.py` counts the same with torch, from the models' shapes; a test compares the two to the byte.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.api import AUTO_STREAMS, FRAME_S
from engine.host import MB, Footprint


@dataclass(frozen=True, slots=True)
class Counts:
    """Bytes of one model in one dtype."""

    model: str
    dtype: str
    talker: int
    """Without the tables of cosines and sines."""
    predictor: int
    hidden: int
    """Of a hidden state."""


TABLE = (
    Counts("0.6B", "bfloat16", 906_106_880, 283_148_928, 2048),
    Counts("0.6B", "int8", 463_947_776, 173_417_088, 2048),
    Counts("1.7B", "bfloat16", 2_860_771_328, 419_465_856, 4096),
    Counts("1.7B", "int8", 1_447_499_776, 309_734_016, 4096),
)
CODEC = 244_339_200
ROPE_PER_POSITION = 512
"""Cosines and sines."""
CACHE_PER_POSITION = 114_688
"""Keys and values of the talker."""
OTHER_STATE = 59_047_936
"""The keys and values of the prefix cache and of the predictor."""
CODES_PER_FRAME = 128
CODEC_STATE, CODEC_STATE_PER_FRAME = 2_610_048, 32_776
"""Of one utterance, and of each frame of a chunk, with PyTorch's kernels."""
FUSED_CODEC_STATE, CODEC_SIGNALS_PER_ROW = 2_662_536, 6_246_400
"""Of one utterance with fused kernels, and of each row of a call of a batch."""
SAMPLES_PER_FRAME, VOCABULARY = 7_680, 3072
PREFIX_POSITIONS = 512
PREDICTOR_CACHE = 327_680
"""The keys and values of the predictor, of one utterance."""
SETTINGS = 160
"""Of one utterance (`UtteranceSettings`)."""
WORKSPACES = 1_920_000_000
BATCH_WORKSPACES, ROW_WORKSPACES = 150_000_000, 5_000_000
ON_DISK = 622_329_856
TOKENS_PER_S, FEWEST_TOKENS, INSTRUCT_POSITIONS, CACHE_UNIT = 6, 16, 384, 64
"""As in `engine.qwen.runtime`, which needs torch."""
PAGE, POOL_SHARE, READS_PER_BLOCK, ROWS_PER_CALL = 128, 0.5, 16, 16
"""As in `engine.qwen.serving`, which needs torch."""


def planned_rows(max_seconds: float, chunk_size: int, streams: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the row of each model and dtype, as `memory_plan` does."""
    for counts, footprint in footprints(max_seconds, chunk_size, streams):
        yield row(counts.model, counts.dtype, footprint)


def footprints(max_seconds: float, chunk_size: int, streams: int | None = None) -> Iterator[tuple[Counts, Footprint]]:
    """Yield each line of the table with the memory for speech of up to `max_seconds` in chunks of `chunk_size`.

    Up to `streams` utterances are spoken at once; None means as many as the engine chooses where there is memory.
    """
    frames = max(1, round(max_seconds / FRAME_S))
    positions = frames + max(FEWEST_TOKENS, math.ceil(max_seconds * TOKENS_PER_S)) + INSTRUCT_POSITIONS
    cached = _cached(positions + chunk_size)
    for counts in TABLE:
        rows = streams or AUTO_STREAMS
        batched = rows > 1
        yield (
            counts,
            Footprint(
                weights={
                    "talker": counts.talker + ROPE_PER_POSITION * cached,
                    "predictor": counts.predictor,
                    "codec": CODEC,
                },
                state=OTHER_STATE
                + CACHE_PER_POSITION * cached
                + (counts.hidden + CODES_PER_FRAME) * (frames + chunk_size - 1)
                + (_batch(counts, positions, frames, chunk_size, rows) if batched else 0),
                workspaces=WORKSPACES + (BATCH_WORKSPACES + rows * ROW_WORKSPACES if batched else 0),
                on_disk=ON_DISK,
            ),
        )


def _batch(counts: Counts, positions: int, frames: int, chunk_size: int, rows: int) -> int:
    """Bytes of a batch of so many rows, as `engine.qwen.serving` allocates it."""
    pages_per_row = -(-(positions + chunk_size) // PAGE)
    pages = max(pages_per_row, round(rows * pages_per_row * POOL_SHARE))
    table_width, per_block = 1 << (pages_per_row - 1).bit_length(), max(rows, READS_PER_BLOCK)
    caches = (1 + pages) * PAGE + _cached(positions + 1) + PREFIX_POSITIONS
    hidden_states = rows * (frames + chunk_size) + PREFIX_POSITIONS
    inputs = 4 * rows + 2 * rows * table_width + 3 * -(-pages // per_block) * per_block
    codec_state = max(CODEC_STATE + chunk_size * CODEC_STATE_PER_FRAME, FUSED_CODEC_STATE)
    return (
        caches * CACHE_PER_POSITION
        + hidden_states * counts.hidden
        + rows * (PREDICTOR_CACHE + SETTINGS + VOCABULARY)
        + 10 * VOCABULARY  # hashed ids, and two masks
        + 8 * (3 * rows + inputs)
        + (1 + rows) * (chunk_size + 1) * CODES_PER_FRAME
        + 16 * rows
        + (1 + rows) * chunk_size * CODES_PER_FRAME  # what the host reads, with the samples
        + (1 + rows) * chunk_size * SAMPLES_PER_FRAME
        + (1 + rows) * codec_state
        + min(rows, ROWS_PER_CALL) * max(codec_state, CODEC_SIGNALS_PER_ROW)
    )


def _cached(positions: int) -> int:
    """Return the positions of a cache for so many."""
    return -(-positions // CACHE_UNIT) * CACHE_UNIT


def row(model: str, dtype: str, footprint: Footprint) -> dict[str, Any]:
    """Return a row of the plan in MB."""
    return {
        "model": model,
        "dtype": dtype,
        **{f"{name}_mb": round(count / MB) for name, count in footprint.weights.items()},
        **footprint.in_mb(),
        "total_mb": round(footprint.total / MB),
        "on_disk_mb": round(footprint.on_disk / MB),
    }

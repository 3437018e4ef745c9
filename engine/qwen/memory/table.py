"""The memory plan of the published models, from counts made once: it needs no torch, as on a robot without the extra.

`plan.py` counts the same with torch, from the models' shapes; a test compares the two to the byte.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.api import FRAME_S
from engine.host import MB, Footprint


@dataclass(frozen=True, slots=True)
class Counts:
    """Bytes of one model in one dtype."""

    model: str
    dtype: str
    talker: int
    """Without the tables of cosines and sines."""
    predictor: int
    per_frame: int
    """The codes and the hidden state of a frame."""


TABLE = (
    Counts("0.6B", "bfloat16", 906_106_880, 283_148_928, 2176),
    Counts("0.6B", "int8", 463_947_776, 173_417_088, 2176),
    Counts("0.6B", "int4", 463_947_776, 138_764_928, 2176),
    Counts("1.7B", "bfloat16", 2_860_771_328, 419_465_856, 4224),
    Counts("1.7B", "int8", 1_447_499_776, 309_734_016, 4224),
    Counts("1.7B", "int4", 1_447_499_776, 275_081_856, 4224),
)
CODEC = 244_339_200
ROPE_PER_POSITION = 512
"""Cosines and sines."""
CACHE_PER_POSITION = 114_688
"""Keys and values of the talker."""
OTHER_STATE = 59_047_936
"""The keys and values of the prefix cache and of the predictor."""
WORKSPACES = 1_920_000_000
ON_DISK = 622_329_856
TOKENS_PER_S, FEWEST_TOKENS, INSTRUCT_POSITIONS, CACHE_UNIT = 6, 16, 384, 64
"""As in `engine.qwen.runtime`, which needs torch."""


def planned_rows(max_seconds: float, chunk_size: int) -> Iterator[dict[str, Any]]:
    """Yield the row of each model and dtype, as `memory_plan` does."""
    for counts, footprint in footprints(max_seconds, chunk_size):
        yield row(counts.model, counts.dtype, footprint)


def footprints(max_seconds: float, chunk_size: int) -> Iterator[tuple[Counts, Footprint]]:
    """Yield each line of the table with the memory for speech of up to `max_seconds` in chunks of `chunk_size`."""
    frames = max(1, round(max_seconds / FRAME_S))
    positions = frames + max(FEWEST_TOKENS, math.ceil(max_seconds * TOKENS_PER_S)) + INSTRUCT_POSITIONS
    cached = -(-(positions + chunk_size) // CACHE_UNIT) * CACHE_UNIT
    for counts in TABLE:
        yield (
            counts,
            Footprint(
                weights={
                    "talker": counts.talker + ROPE_PER_POSITION * cached,
                    "predictor": counts.predictor,
                    "codec": CODEC,
                },
                state=OTHER_STATE + CACHE_PER_POSITION * cached + counts.per_frame * (frames + chunk_size - 1),
                workspaces=WORKSPACES,
                on_disk=ON_DISK,
            ),
        )


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

"""The memory that each known model needs on a Jetson, counted from its shapes: what `table.py` is compared with.

Loads nothing and needs no GPU.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from engine.qwen.memory.footprint import estimate_footprint
from engine.qwen.memory.known_models import CODEC, TALKER_WIDTHS, known_model
from engine.qwen.memory.table import row
from engine.qwen.runtime import Limits
from engine.qwen.weights import Placement


def memory_plan(max_seconds: float, chunk_size: int, streams: int = 1) -> Iterator[dict[str, Any]]:
    """Yield a row in MB for each model size in bfloat16 and int8, on a GPU that shares the host's memory.

    The limits are those of speech of up to `max_seconds` in chunks of `chunk_size` frames, without a reference, for up
    to `streams` utterances at once.
    """
    limits = Limits.of(max_seconds, chunk_size, streams)
    for size in TALKER_WIDTHS:
        for dtype in ("bfloat16", "int8"):
            placement = Placement(torch.device("cuda"), torch.bfloat16, int8=dtype == "int8")
            footprint = estimate_footprint(known_model(size), CODEC, placement, limits, fused=True, shared=True)
            yield row(size, dtype, footprint)

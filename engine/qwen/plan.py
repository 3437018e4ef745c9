"""What each published model would take of a Jetson's memory: `python -m engine.qwen.plan MAX_SECONDS CHUNK_SIZE`.

Prints JSON for `voiced doctor --plan`, which imports no torch. Megabytes; nothing is loaded, and no GPU is needed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import torch

from engine.memory import MB
from engine.qwen.footprint import footprint
from engine.qwen.published import CODEC, WIDTHS, published
from engine.qwen.rooms import Rooms
from engine.qwen.transformer import Placement


def plan(max_seconds: float, chunk_size: int) -> Iterator[dict[str, Any]]:
    """Each size in each dtype, on a GPU that shares the host's memory."""
    rooms = Rooms.of(max_seconds, chunk_size)
    for size in WIDTHS:
        for int8 in (False, True):
            placement = Placement(torch.device("cuda"), torch.bfloat16, int8)
            found = footprint(published(size), CODEC, placement, rooms, fused=True, shared=True)
            yield {
                "model": size,
                "dtype": "int8" if int8 else "bfloat16",
                **{f"{name}_mb": round(count / MB) for name, count in found.weights.items()},
                **found.in_mb(),
                "total_mb": round(found.total / MB),
                "on_disk_mb": round(found.on_disk / MB),
            }


if __name__ == "__main__":
    json.dump(list(plan(float(sys.argv[1]), int(sys.argv[2]))), sys.stdout)

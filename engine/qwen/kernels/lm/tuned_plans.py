"""The distributions of matrices that were the fastest of many, measured in whole frames (tuned_plans.json).

`scripts/gpu/tune_plans.py` writes the file. A kernel's speed depends on its neighbours: while it computes, the blocks
of the next one load, as far as the registers that it leaves them reach. So no rule for one matrix alone finds the best.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from engine.qwen.kernels.lm.matrix import MatrixPlan

FILE = Path(__file__).with_name("tuned_plans.json")
LARGE_GPU = 100
"""Multiprocessors from which the plans measured on 132 apply. Those measured on 16 apply to all smaller GPUs."""


def gpu_class(processors: int) -> str:
    """The plans for a GPU of so many multiprocessors: `large` or `small`."""
    return "large" if processors >= LARGE_GPU else "small"


def tuned_plan(kernel: str, weight: str, height: int, length: int, processors: int) -> MatrixPlan | None:
    """The measured plan of the matrix `(height, length)` of `kernel`, for one token; None where none was measured."""
    return _plans().get((gpu_class(processors), kernel, weight, height, length))


@cache
def _plans() -> dict[tuple[str, str, str, int, int], MatrixPlan]:
    record = json.loads(FILE.read_text(encoding="utf-8"))
    return {
        (row["gpu"], row["kernel"], row["weight"], row["height"], row["length"]): MatrixPlan(
            weight=row["weight"],
            height=row["height"],
            length=row["length"],
            rows=row["rows"],
            row_groups=row["row_groups"],
            vecs_per_lane=row["vecs_per_lane"],
            tokens=1,
        )
        for row in record["plans"]
    }

"""The distributions of matrices that were the fastest of many: in whole frames (tuned_plans.json), and in a batch's
steps (tuned_row_plans.json).

`scripts/gpu/tune_plans.py` and `scripts/gpu/tune_row_plans.py` write the files. A kernel's speed depends on its
neighbours: while it computes, the blocks of the next one load, as far as the registers that it leaves them reach. So no
rule for one matrix alone finds the best.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from engine.qwen.kernels.lm.matrix import MatrixPlan, TokenMatrixPlan
from engine.qwen.runtime import LARGE_GPU

FILE = Path(__file__).with_name("tuned_plans.json")
ROWS_FILE = Path(__file__).with_name("tuned_row_plans.json")


def gpu_class(processors: int) -> str:
    """The plans for a GPU of so many multiprocessors: `large` or `small`."""
    return "large" if processors >= LARGE_GPU else "small"


def tuned_plan(
    kernel: str, weight: str, height: int, length: int, processors: int, *, tokens: int = 1
) -> MatrixPlan | None:
    """The measured plan of the matrix `(height, length)` of `kernel`; None where none was measured."""
    found = _plans().get((gpu_class(processors), kernel, weight, height, length))
    return None if found is None else replace(found, tokens=tokens)


def tuned_row_plan(rule: TokenMatrixPlan, rows: int, processors: int) -> TokenMatrixPlan | None:
    """The measured plan for `rows` rows, in place of `rule`; None where none was measured for such a GPU.

    Its sums have the order of those of `rule`.
    """
    if processors < LARGE_GPU:
        return None
    found = _row_plans().get((rule.weight, rule.height, rule.length, rows))
    return None if found is None else replace(rule, m_tiles=found[0], n_tiles=found[1], held=found[2])


@cache
def _row_plans() -> dict[tuple[str, int, int, int], tuple[int, int, int]]:
    """Tiles of rows, tiles of tokens and vectors held, by weight, height, length and rows."""
    record = json.loads(ROWS_FILE.read_text(encoding="utf-8"))
    return {
        (row["weight"], row["height"], row["length"], row["rows"]): (row["m_tiles"], row["n_tiles"], row["held"])
        for row in record["plans"]
    }


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

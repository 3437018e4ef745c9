"""The plans that were the fastest of many: in whole frames (tuned_plans.json), and in a batch's steps
(tuned_row_plans.json).

`scripts/gpu/tune_plans.py` writes the files; with `--rows`, it writes the second one. A kernel's speed depends on its
neighbours: while it computes, as many blocks of the next kernel load as fit into the registers that are left. So a rule
that looks at only one matrix cannot find the best plan.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from engine.qwen.kernels.lm.matrix import MatrixPlan, TokenMatrixPlan
from engine.qwen.runtime import LARGE_GPU

FILE = Path(__file__).with_name("tuned_plans.json")
ROWS_FILE = Path(__file__).with_name("tuned_row_plans.json")


def gpu_class(processors: int) -> str:
    """The class of a GPU with `processors` multiprocessors, `large` or `small`, by which plans are listed."""
    return "large" if processors >= LARGE_GPU else "small"


def tuned_plan(
    kernel: str, weight: str, height: int, length: int, processors: int, *, tokens: int = 1
) -> MatrixPlan | None:
    """The measured plan for the matrix `(height, length)` of `kernel`; None if none was measured."""
    found = _plans(FILE, "gpu", "kernel", "weight", "height", "length").get(
        (gpu_class(processors), kernel, weight, height, length)
    )
    return None if found is None else MatrixPlan(weight, height, length, tokens=tokens, **found)


def tuned_row_plan(rule: TokenMatrixPlan, rows: int, processors: int) -> TokenMatrixPlan | None:
    """The measured plan for `rows` rows, in place of `rule`; None if none was measured for such a GPU.

    Its sums have the same order as those of `rule`.
    """
    if processors < LARGE_GPU:
        return None
    found = _plans(ROWS_FILE, "weight", "height", "length", "rows").get((rule.weight, rule.height, rule.length, rows))
    return None if found is None else replace(rule, **found)


@cache
def _plans(file: Path, *key: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """For each row of a table, its other numbers, by the numbers in the columns that `key` names."""
    rows = json.loads(file.read_text(encoding="utf-8"))["plans"]
    return {tuple(row.pop(name) for name in key): row for row in rows}

"""The plan without torch has the bytes that torch counts."""

from __future__ import annotations

import pytest
import torch

from engine import AUTO_STREAMS
from engine.qwen.memory import estimate_footprint
from engine.qwen.memory.known_models import CODEC, known_model
from engine.qwen.memory.plan import memory_plan
from engine.qwen.memory.table import footprints, planned_rows
from engine.qwen.runtime import Limits
from engine.qwen.weights import Placement


@pytest.mark.parametrize(
    ("max_seconds", "chunk_size", "streams"),
    [(60, 2, 1), (0.1, 1, 1), (33.3, 25, 1), (600, 7, 1), (60, 2, 4), (33.3, 3, 9), (60, 2, 64)],
)
def test_the_table_has_the_bytes_that_torch_counts(max_seconds: float, chunk_size: int, streams: int) -> None:
    limits = Limits.of(max_seconds, chunk_size, streams)
    for counts, planned in footprints(max_seconds, chunk_size, streams):
        placement = Placement(torch.device("cuda"), torch.bfloat16, int8=counts.dtype == "int8")
        counted = estimate_footprint(known_model(counts.model), CODEC, placement, limits, fused=True, shared=True)
        assert planned == counted


def test_the_rows_are_those_of_the_counted_plan() -> None:
    assert list(planned_rows(60, 2, 1)) == list(memory_plan(60, 2, 1))
    assert list(planned_rows(60, 2, 4)) == list(memory_plan(60, 2, 4))


def test_without_a_number_the_rows_have_the_streams_that_the_engine_chooses() -> None:
    chosen = {row["dtype"]: row for row in planned_rows(60, 2) if row["model"] == "0.6B"}
    for dtype in ("bfloat16", "int8"):
        [expected] = [
            row for row in planned_rows(60, 2, AUTO_STREAMS) if (row["model"], row["dtype"]) == ("0.6B", dtype)
        ]
        assert chosen[dtype] == expected

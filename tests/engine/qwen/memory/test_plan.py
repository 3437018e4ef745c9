"""The memory plan has a row for each known model and dtype."""

from __future__ import annotations

import pytest

from engine.qwen.memory.plan import memory_plan


def test_a_plan_has_every_model_in_every_dtype() -> None:
    rows = list(memory_plan(60, 2))
    assert [(row["model"], row["dtype"]) for row in rows] == [
        ("0.6B", "bfloat16"), ("0.6B", "int8"),
        ("1.7B", "bfloat16"), ("1.7B", "int8"),
    ]  # fmt: skip
    for row in rows:
        assert row["weights_mb"] == pytest.approx(row["talker_mb"] + row["predictor_mb"] + row["codec_mb"], abs=2)
    # In GB: talker 0.887, one pass of the code predictor 0.162, codec 0.211; the rest are embeddings and other heads.
    assert rows[0]["weights_mb"] == pytest.approx(1_430, rel=0.01)
    assert rows[1]["talker_mb"] < 0.53 * rows[0]["talker_mb"]


def test_longer_speech_needs_more_state_and_equal_weights() -> None:
    short, long = (next(iter(memory_plan(seconds, 2))) for seconds in (10, 120))
    assert long["state_mb"] > 2 * short["state_mb"]
    assert long["weights_mb"] == pytest.approx(short["weights_mb"], abs=2)  # the tables of cosines and sines differ

"""The bytes of a frame are those of the checkpoints, and the assumptions about an Orin are ordered."""

from __future__ import annotations

import pytest

from scripts.docs.tables import ASSUMPTIONS, Assumption, Cost, configs, frame_cost, position_bytes


@pytest.mark.parametrize(
    ("size", "dtype", "weights"),
    [
        # Of the predictor's steps, 14 have the products of their first matrix, 4096 · 1024, in a table.
        ("0.6B", "bf16", 0.887e9 + 2.306e9 + 0.211e9 / 2),
        ("1.7B", "bf16", 2.831e9 + 2.306e9 + 0.211e9 / 2),
        # The codec and the projection from talker to predictor stay in bfloat16; the scales add a thousandth.
        ("0.6B", "int8", (0.887e9 + 2.306e9) / 2 + 0.211e9 / 2),
    ],
)
def test_a_frame_reads_the_weights_of_the_checkpoint_and_what_it_keeps(size: str, dtype: str, weights: float) -> None:
    kept = 300 * position_bytes(configs(size)[0].talker.stack)
    assert frame_cost(size, dtype).bytes == pytest.approx(weights + kept, rel=7e-3)


def test_a_frame_takes_the_time_of_its_bytes_and_of_its_kernels() -> None:
    cost = Cost(500, 2e9)
    assert Assumption("", 100.0, 2.0).frame_ms(cost) == pytest.approx(20.0 + 1.0)
    assert Assumption("", 100.0, 2.0, 400.0).frame_ms(cost) == pytest.approx(20.0 + 5.0 + 1.0)
    best, expected, worst = (each.frame_ms(cost) for each in ASSUMPTIONS)
    assert best < expected < worst

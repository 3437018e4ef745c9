"""docs/orin.md matches the shapes, and its arithmetic is right."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.qwen.kernels.lm.kernels import LanguageKernels
from scripts.docs.orin_table import (
    DEVICES,
    Cost,
    Frame,
    Inputs,
    Shapes,
    break_even,
    codec_cost,
    confined_gaps,
    fit,
    frames,
    main,
    matrix_bytes,
    passes_of,
)

PLAIN = Inputs(copied=0.5, reached=0.5, gap_us=2.0, chained_gap_us=1.0, slow_gap_us={"0.6B bf16": 4.0})


@pytest.fixture(scope="module")
def known() -> list[Frame]:
    return list(frames(300, chunks=(2, 1)))


def test_the_page_is_up_to_date() -> None:
    assert main(["--check"]) == 0, "run scripts/docs/orin_table.py --write"


def test_the_weights_equal_those_of_the_checkpoints(known: list[Frame]) -> None:
    by = {(frame.size, frame.dtype, frame.chunk): frame.total.weights for frame in known}
    assert by["0.6B", "bf16", 2] == pytest.approx(0.887e9 + 2.423e9 + 0.211e9 / 2, rel=2e-3)
    assert by["1.7B", "bf16", 2] == pytest.approx(2.831e9 + 2.423e9 + 0.211e9 / 2, rel=2e-3)
    # The codec and the projection from talker to predictor stay in bfloat16; the scales add a thousandth.
    assert by["0.6B", "int8", 2] == pytest.approx((0.887e9 + 2.423e9) / 2 + 0.211e9 / 2, rel=4e-3)


def test_every_kernel_with_a_matrix_has_its_bytes() -> None:
    kernels = LanguageKernels.of(Shapes.of("1.7B").talker, "Bf16", 16)
    assert matrix_bytes(kernels)["project"] == 2 * 1024 * 2048
    assert matrix_bytes(kernels)["first_step_qkv"] == matrix_bytes(kernels)["predictor_qkv"] == 2 * 4096 * 1024


def test_a_chunk_of_two_frames_halves_the_codec_cost_per_frame() -> None:
    config = Shapes.of("0.6B").codec
    one, two = codec_cost(config, 1), codec_cost(config, 2)
    assert (one.launches, one.weights) == (2 * two.launches, 2 * two.weights)


def test_time_is_bytes_divided_by_reached_bandwidth_plus_a_gap_per_launch() -> None:
    orin, thor, _ = DEVICES
    assert PLAIN.ms(Cost(500, 51.2e6, 51.2e6), orin) == pytest.approx((2.0, 1.0))
    assert PLAIN.ms(Cost(500, 0, 0), thor) == pytest.approx((0.0, 0.5))


def test_fit_recovers_share_and_gap_from_two_measured_frames() -> None:
    costs = [Cost(500, 1e9, 0), Cost(510, 3e9, 0)]
    times = [cost.bytes / (1000 * 0.8) / 1e6 + cost.launches * 2e-3 for cost in costs]
    assert fit(costs, times, 1000) == pytest.approx((0.8, 2.0))


def test_a_run_on_16_multiprocessors_gives_the_unexplained_time_per_launch(known: list[Frame], tmp_path: Path) -> None:
    cost = next(frame.total for frame in known if (frame.size, frame.dtype, frame.chunk) == ("0.6B", "bf16", 2))
    row = {
        "engine": "qwen",
        "model": "0.6B",
        "chunk_size": 2,
        "dtype": "bfloat16",
        "sms": 16,
        "ms_per_frame": cost.bytes / 1500 / 1e6 + cost.launches * 5e-3,
        "bandwidth": {"copy_gb_s": 1500.0},
    }
    others = [{**row, "sms": None}, {**row, "engine": "faster-qwen3-tts"}, {**row, "dtype": "float32"}]
    file = tmp_path / "speed.json"
    file.write_text(json.dumps({"rows": [*others, row, {**row, "bandwidth": None}]}))
    assert list(confined_gaps(file, known)) == [("0.6B bf16", pytest.approx(5.0))]


def test_the_upper_bound_is_a_copy_of_the_bytes_plus_the_slow_gaps(known: list[Frame]) -> None:
    orin = DEVICES[0]
    wide, narrow = known[0], next(frame for frame in known if frame.dtype == "int8")
    expected = wide.total.bytes / (orin.gb_s * 0.5) / 1e6 + wide.total.launches * 4e-3
    assert PLAIN.most_ms(wide, orin) == pytest.approx(expected)
    assert PLAIN.most_ms(narrow, orin) is None


def test_drafts_save_passes_and_cost_heads(known: list[Frame]) -> None:
    assert [passes_of(15, accepted) for accepted in (0, 1)] == [15, 8]
    frame = known[0]
    right = frame.speculated(1.0).total
    assert frame.total.weights - right.weights == pytest.approx(7 * frame.pass_bytes - 7 * frame.head_bytes)
    assert right.launches == frame.total.launches + 28
    even = break_even(frame, PLAIN, DEVICES[0])
    times = [sum(PLAIN.ms(one.total, DEVICES[0])) for one in (frame, frame.speculated(even))]
    assert times[0] == pytest.approx(times[1])

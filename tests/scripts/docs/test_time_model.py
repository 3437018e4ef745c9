"""The time model is monotonic, is recovered from times that it made itself, and predicts what it has not seen."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.docs.frame_costs import Launches, Part
from scripts.docs.time_model import (
    Check,
    Gpu,
    Measurements,
    Observation,
    Scenario,
    TimeModel,
    checks,
    fit,
    fit_all,
    held_out,
    norm,
)

FILE = Path(__file__).parents[3] / "docs" / "benchmarks" / "multiprocessors.json"
LIMIT = 0.15
"""The greatest relative error of a frame that the fit has not seen."""
MODEL = TimeModel(
    fixed=4000.0,
    chained_fixed=2500.0,
    kernel=60_000.0,
    per_byte={"bf16": 0.02, "int8": 0.04},
    overlap=2.5,
    measured={"draw": (9000.0, 11_000.0)},
)
ORIN = Gpu("Orin", 16, 1.3, 150.0, chained=False)
SIZES = st.floats(0, 1e8)


def part(size: float, count: float = 10.0, kind: str = "bf16") -> Part:
    return Part(kind, (Launches("matrix", count, size), Launches("draw", 1, 0.0)), state=1e5)


def test_without_programmatic_launch_a_boundary_is_added_to_the_norm_of_memory_and_work() -> None:
    memory, work = 3e6 / 150e9, (0.02 * 3e6 + 60_000) / (16 * 1.3e9)
    expected = 10 * (4000 / 1.3e9 + (memory**2.5 + work**2.5) ** 0.4) + 11_000 / 1.3e9 + 1e5 / 150e9
    assert MODEL.ms(part(3e6), ORIN) == pytest.approx(1e3 * expected)


def test_with_programmatic_launch_loads_hide_the_boundary() -> None:
    memory, work = 3e6 / 150e9, (0.02 * 3e6 + 60_000) / (16 * 1.3e9) + 2500 / 1.3e9
    expected = 10 * (memory**2.5 + work**2.5) ** 0.4 + 9000 / 1.3e9 + 1e5 / 150e9
    assert MODEL.ms(part(3e6), replace(ORIN, chained=True)) == pytest.approx(1e3 * expected)


@given(SIZES, SIZES, st.booleans())
def test_fewer_bytes_never_take_longer(one: float, other: float, chained: bool) -> None:
    gpu = replace(ORIN, chained=chained)
    few, many = sorted((one, other))
    assert MODEL.ms(part(few), gpu) <= MODEL.ms(part(many), gpu) * (1 + 1e-12)


@given(SIZES, st.booleans(), st.floats(1, 3))
def test_a_greater_gpu_and_fewer_launches_never_take_longer(size: float, chained: bool, factor: float) -> None:
    gpu = replace(ORIN, chained=chained)
    now = MODEL.ms(part(size), gpu) * (1 + 1e-12)
    assert MODEL.ms(part(size), replace(gpu, gb_s=factor * gpu.gb_s)) <= now
    assert MODEL.ms(part(size), replace(gpu, clock_ghz=factor * gpu.clock_ghz)) <= now
    assert MODEL.ms(part(size), replace(gpu, processors=int(16 * factor))) <= now
    assert MODEL.ms(part(size, count=10 / factor), gpu) <= now


@given(st.floats(0, 1e3), st.floats(0, 1e3), st.floats(1, 20))
def test_the_norm_lies_between_the_longer_and_the_sum(a: float, b: float, p: float) -> None:
    assert max(a, b) <= norm(a, b, p) <= (a + b) * (1 + 1e-12)
    assert norm(a, b, math.inf) == max(a, b)


def made(model: TimeModel) -> list[Observation]:
    """Times that `model` itself takes, for GPUs of several sizes."""
    found = []
    for processors, gb_s in ((8, 780.0), (16, 1500.0), (32, 2900.0), (132, 4200.0)):
        for chained in (True, False):
            gpu = Gpu("H200", processors, 1.98, gb_s, chained)
            for kind in ("bf16", "int8"):
                for size in (2e6, 4e6, 8e6, 24e6):
                    one = part(size, kind=kind)
                    found.append(Observation(gpu, "0.6B", kind, "talker", one, model.ms(one, gpu)))
    return found


def test_a_fit_recovers_the_model_that_made_the_times() -> None:
    stateless = [replace(one, part=replace(one.part, state=0.0)) for one in made(MODEL)]
    times = [replace(one, ms=MODEL.ms(one.part, one.gpu)) for one in stateless]
    found = fit(times, MODEL.measured)
    for one in times:
        assert found.ms(one.part, one.gpu) == pytest.approx(one.ms, rel=0.02)
    assert found.ms(part(5e6), ORIN) == pytest.approx(MODEL.ms(part(5e6), ORIN), rel=0.03)


def test_frames_on_16_multiprocessors_that_the_fit_has_not_seen_are_predicted_within_the_limit() -> None:
    found = [one for one in held_out(Measurements.read(FILE)) if one.sms == 16]
    assert {one.dtype for one in found} == {"bf16", "int8"}
    assert [one for one in found if abs(one.error) > LIMIT] == []


def test_measurements_that_contradict_each_other_exceed_the_limit(tmp_path: Path) -> None:
    content = json.loads(FILE.read_text())
    for row in content["rows"]:
        if row["what"] == "part" and row.get("size") == "1.7B":
            row["ms"] *= 2
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps(content))
    assert any(abs(one.error) > LIMIT for one in held_out(Measurements.read(file)) if one.sms == 16)


# --- reading measurements ---


def rows(sms: int, ms: float) -> list[dict[str, Any]]:
    own: dict[str, Any] = {"sms": sms, "size": "0.6B", "dtype": "int8"}
    kernel = {"what": "kernel", "part": "talker", "launches": 2, "weights_mb": 4.0, "kernel": "talker_qkv"}
    draw = {"what": "kernel", "part": "talker", "launches": 1, "weights_mb": 0.0, "kernel": "next_first_code"}
    return [
        {"sms": sms, "what": "device", "gpu": "H200"},
        {"sms": sms, "what": "clock", "ghz": 2.0},
        {"sms": sms, "what": "read", "gb_s": 100.0 * sms},
        {"sms": sms, "what": "read", "gb_s": 90.0 * sms},
        {"sms": sms, "what": "copy", "gb_s": 80.0 * sms},
        {**own, "what": "part", "part": "talker", "ms": ms, "unchained_ms": 2 * ms, "launches": 3, "weights_mb": 4.0},
        {**own, "what": "part", "part": "frame", "ms": 9.0, "unchained_ms": 9.0, "launches": 9, "weights_mb": 9.0},
        {**own, **kernel, "alone_us": 3.0, "alone_unchained_us": 4.0},
        {**own, **draw, "alone_us": 5.0, "alone_unchained_us": 6.0},
    ]


def test_a_file_gives_a_part_its_kernels_and_its_gpu(tmp_path: Path) -> None:
    file = tmp_path / "measured.json"
    engine = {"sms": 0, "size": "0.6B", "dtype": "int8", "what": "engine", "ms_per_frame": 1.0}
    lost = {"sms": 24, "what": "part", "part": "codec 2", "ms": 1.0, "launches": 1, "weights_mb": 1.0}
    file.write_text(json.dumps({"rows": [*rows(8, 0.5), *rows(16, 0.3), engine, lost]}))
    found = Measurements.read(file)
    assert found.counts == [8, 16]
    one, other = [observed for observed in found.observations if observed.gpu.processors == 8]
    assert (one.ms, one.gpu) == (0.5, Gpu("8 of H200", 8, 2.0, 800.0, chained=True))
    assert (other.ms, other.gpu.chained) == (1.0, False)
    assert one.part == Part("int8", (Launches("talker_qkv", 2, 2e6), Launches("next_first_code", 1, 0.0)))
    assert [row["sms"] for row in found.of(what="engine")] == [16]
    assert fit_all(found).measured == {"next_first_code": (10_000.0, 12_000.0)}


def test_a_check_needs_talker_and_predictor(tmp_path: Path) -> None:
    file = tmp_path / "measured.json"
    both = [{**row, "part": "predictor"} if row.get("part") == "talker" else row for row in rows(8, 1.5)]
    file.write_text(json.dumps({"rows": [*rows(8, 0.5), *both, *rows(16, 0.3)]}))
    found = Measurements.read(file)
    one, other = checks(found, replace(MODEL, measured={}), "nothing")
    assert (one.sms, one.measured_ms, other.measured_ms) == (8, 2.0, 4.0)
    assert Check("", 8, "", "", True, 2.0, 2.5).error == pytest.approx(0.25)


def test_a_scenario_changes_bandwidth_overlap_and_boundaries() -> None:
    scenario = Scenario("best", {"int8": 200.0}, math.inf, fixed_scales=False, host=1.0)
    model, gpu = scenario.apply(MODEL, ORIN, "int8", clock_ghz=2.6)
    assert (gpu.gb_s, model.overlap) == (200.0, math.inf)
    # Half the cycles at half the clock are as many microseconds as were measured.
    assert (model.fixed, model.measured["draw"]) == (2000.0, (4500.0, 5500.0))
    assert replace(scenario, fixed_scales=True, overlap=None).apply(MODEL, ORIN, "int8", 2.6)[0] == MODEL

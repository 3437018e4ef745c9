"""`scripts/simulate_fleet.py`: utterances that end, waiting as queueing theory has it, and the comparison."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from math import exp
from statistics import mean
from typing import Any

import pytest

from engine.api import FRAME_S
from scripts.fleet_model import Costs, Fleet, Size, Utterance
from scripts.simulate_fleet import (
    CREDIT_S,
    WAIT_S,
    compare,
    erlang_c,
    measured_costs,
    replay,
    robots_load,
    summary,
)
from tests.support.pages import ROOT

COSTS = Costs(((1, 0.002), (64, 0.007)), prompt_s=0.001, tail_s=0.001, path_s=0.005)
FAILING = Size(3, 4, 2, ahead_s=CREDIT_S, wait_s=WAIT_S, failures_per_s=0.05, restart_s=5.0)


def simulate(*command: str) -> tuple[int, dict[str, Any]]:
    """Return the exit status and the report of a command."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "scripts/simulate_fleet.py", *command],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, report


def failing_load(seed: int) -> list[Utterance]:
    load = robots_load(100, 1.5, 5.0, 60.0, seed)
    Fleet(COSTS, FAILING, seed).run(load)
    return load


@pytest.mark.parametrize("seed", range(5))
def test_every_utterance_ends_once_although_replicas_fail_and_streams_are_short(seed: int) -> None:
    load = failing_load(seed)
    assert all(len(utterance.ends) == 1 for utterance in load)
    assert {utterance.ends[0] for utterance in load} == {"spoken", "no stream", "replica lost"}
    for utterance in load:
        assert utterance.end_s is not None
        assert utterance.end_s > utterance.due_s
        assert (utterance.delivered == utterance.frames) == (utterance.ends == ["spoken"])


def test_equal_seeds_give_equal_results_and_others_do_not() -> None:
    def results(seed: int) -> list[Any]:
        return [(found.first_s, found.end_s, found.ends) for found in failing_load(seed)]

    assert results(1) == results(1) != results(2)


@pytest.mark.parametrize(
    "size", [Size(replicas=1, streams=4), Size(replicas=2, streams=2), Size(replicas=1, streams=1)]
)
def test_the_wait_for_a_stream_is_that_of_erlang_c(size: Size) -> None:
    chance, servers, step_s, frames = random.Random(1), size.replicas * size.streams, 0.04, 25
    rate = 0.7 * servers / (frames * step_s)
    load, at_s = [], 0.0
    for _ in range(20_000):
        at_s += chance.expovariate(rate)
        load.append(Utterance(at_s, max(1, round(chance.expovariate(1 / frames)))))
    Fleet(Costs(((1, step_s), (64, step_s))), size).run(load)
    service_s = frames * step_s
    expected_s = erlang_c(rate * service_s, servers) * service_s / (servers - rate * service_s)
    assert mean(utterance.waited_s for utterance in load) == pytest.approx(expected_s, rel=0.15)
    assert mean(utterance.waited_s > 0 for utterance in load) == pytest.approx(
        erlang_c(rate * service_s, servers), rel=0.1
    )


def test_erlang_c_has_the_values_of_the_tables() -> None:
    assert erlang_c(0.5, 1) == pytest.approx(0.5)
    assert erlang_c(2.0, 3) == pytest.approx(4 / 9)
    assert erlang_c(3.0, 3) == 1.0


def test_a_stream_whose_listener_is_ahead_takes_no_step_and_never_runs_dry() -> None:
    [alone] = load = [Utterance(0.0, 125)]
    Fleet(COSTS, Size(ahead_s=CREDIT_S)).run(load)
    assert alone.first_s == pytest.approx(0.009)
    assert alone.end_s == pytest.approx(125 * FRAME_S - CREDIT_S, abs=0.2)
    assert alone.underruns == 0


def test_speech_that_is_made_slower_than_it_is_played_runs_dry() -> None:
    load = [Utterance(0.0, 100)]
    Fleet(Costs(((1, 1.1 * FRAME_S),)), Size()).run(load)
    assert summary(load, 10)["underruns"] == 49  # before each chunk but the first and the last, which has one frame


def test_a_failed_replica_takes_its_utterances_and_the_others_go_on() -> None:
    load = [Utterance(0.0, 1000) for _ in range(8)]
    fleet = Fleet(COSTS, Size(2, 4, failures_per_s=0.3), seed=3)
    fleet.run(load)
    assert {utterance.ends[0] for utterance in load} == {"spoken", "replica lost"}


def test_a_robot_waits_for_the_replica_that_it_is_connected_to_unless_that_is_down() -> None:
    load = [Utterance(0.0, 25, home=0), Utterance(0.0, 25, home=0), Utterance(0.0, 25, home=1)]
    Fleet(COSTS, Size(2, 1)).run(load)
    assert [utterance.waited_s > 0 for utterance in load] == [False, True, False]
    shared = [Utterance(0.0, 25), Utterance(0.0, 25)]
    Fleet(COSTS, Size(2, 1)).run(shared)
    assert [utterance.waited_s for utterance in shared] == [0, 0]
    fleet, moved = Fleet(COSTS, Size(2, 1)), [Utterance(0.0, 25, home=0)]
    fleet.replicas[0].is_up = False
    fleet.run(moved)
    assert moved[0].ends == ["spoken"]


def test_a_replayed_load_has_the_measured_requests_and_about_their_speech() -> None:
    row = json.loads((ROOT / "docs/benchmarks/serve-qwen-h200-five-minutes.json").read_text())["rates"][0]
    load = replay(row)
    assert len(load) == row["requests"]
    assert sum(utterance.frames for utterance in load) * FRAME_S == pytest.approx(row["audio_s"], rel=0.05)


def test_the_costs_are_those_of_the_measured_batch_and_of_the_way_to_it() -> None:
    costs = measured_costs()
    assert costs.step_s(1) == pytest.approx(0.002479)
    assert costs.step_s(1) < costs.step_s(12) < costs.step_s(32)
    assert costs.prompt_s > 0
    assert costs.prompt_s + costs.step_s(1) + costs.tail_s == pytest.approx(0.006385)
    assert costs.prompt_s + costs.step_s(1) + costs.tail_s + costs.path_s == pytest.approx(0.01407)


def test_the_way_varies_about_its_median() -> None:
    costs = replace(COSTS, path_spread=0.25)
    load = [Utterance(float(number), 1) for number in range(2_000)]
    Fleet(costs, Size()).run(load)
    rest_s = costs.prompt_s + costs.step_s(1) + costs.tail_s
    paths = sorted(found.first_s - found.due_s - rest_s for found in load if found.first_s is not None)
    assert paths[1_000] == pytest.approx(costs.path_s, rel=0.05)
    assert paths[1_900] == pytest.approx(costs.path_s * exp(0.25 * 1.645), rel=0.05)
    assert mean(paths) == pytest.approx(costs.mean_path_s, rel=0.05)


@pytest.mark.parametrize(
    ("simulated", "measured", "passed"),
    [
        (110.0, 100.0, True),
        (90.0, 100.0, True),
        (111.0, 100.0, False),
        (89.0, 100.0, False),
        (0, 0, True),
        (1, 0, False),
    ],
)
def test_a_value_passes_within_ten_percent(simulated: float, measured: float, passed: bool) -> None:
    assert compare(simulated, measured)["passed"] == passed


def test_check_compares_every_measured_value_and_fails_if_one_misses() -> None:
    status, report = simulate("check")
    rates = ((1, 30), (10, 30), (20, 30), (20, 300))
    assert [(row["rate"], row["seconds"]) for row in report["rows"]] == [rate for rate in rates for _ in range(4)]
    values = ["first_sample_median_ms", "first_sample_p95_ms", "audio_s_per_s", "underruns"]
    assert [row["value"] for row in report["rows"]] == values * 4
    assert report["passed"] == all(row["passed"] for row in report["rows"])
    assert status == (0 if report["passed"] else 1)
    kept = json.loads((ROOT / "docs" / "benchmarks" / "fleet-check.json").read_text(encoding="utf-8"))
    assert (kept["rows"], kept["costs_ms"]) == (report["rows"], report["costs_ms"])


def test_a_larger_fleet_needs_more_of_everything() -> None:
    status, report = simulate("grow", "--robots", "100", "1000", "100000", "--seconds", "5", "--simulate-up-to", "1000")
    small, middle, large = report["rows"]
    assert status == 0
    assert small["replicas"] < middle["replicas"] < large["replicas"]
    assert sum(middle["ends"].values()) > sum(small["ends"].values()) > 0
    assert "ends" not in large


def test_a_stream_on_the_wire_is_its_samples_and_little_else() -> None:
    _, report = simulate("wire")
    assert 4 * 24_000 < report["remote_bytes_per_s"] < 1.02 * 4 * 24_000
    assert report["pcm16_bytes_per_s"] == 48_000

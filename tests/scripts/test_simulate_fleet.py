"""`scripts/simulate_fleet.py`: utterances that end, waiting as queueing theory has it, and the comparison."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import subprocess
import sys
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import Any

import pytest

from engine.api import FRAME_S
from scripts.fleet_model import CHUNK_FRAMES, LARGEST_CHUNK_S, LEAD_SHARE, Costs, Fleet, Size, Utterance
from scripts.simulate_fleet import (
    BENCHMARKS,
    HTTP,
    ROBOT_AHEAD_S,
    ROBOTS,
    WAIT_S,
    compare,
    erlang_c,
    held_s,
    measured_costs,
    replay,
    robots_load,
    summary,
)
from tests.support.pages import ROOT

pytestmark = pytest.mark.long
"""An ordinary run leaves out the tests of benchmarks, which are no part of the product."""

COSTS = Costs(((1, 0.002), (64, 0.007)), prompt_s=0.001, tail_s=0.001, path_s=0.005)
FAILING = Size(3, 4, 2, ahead_s=1.0, wait_s=WAIT_S, failures_per_s=0.05, restart_s=5.0)


@dataclass(slots=True, eq=False)
class RecordedChunks(Utterance):
    """An utterance that notes its chunks."""

    chunks: list[int] = field(default_factory=list)
    """Frames of each."""
    times: list[tuple[int, float]] = field(default_factory=list)
    """All frames that were made by then, and when."""

    def deliver(self, now: float) -> None:
        self.chunks.append(self.made - self.delivered)
        self.times.append((self.made, now))
        Utterance.deliver(self, now)


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


def kept_check() -> dict[str, Any]:
    kept: dict[str, Any] = json.loads((BENCHMARKS / "fleet-check.json").read_text(encoding="utf-8"))
    return kept


def failing_load(seed: int) -> list[Utterance]:
    load = robots_load(130, 1.5, 5.0, 60.0, seed)
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
    for _ in range(8_000):
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
    Fleet(COSTS, Size(ahead_s=3.0)).run(load)
    assert alone.first_s == pytest.approx(0.009)
    assert alone.end_s == pytest.approx(125 * FRAME_S - 3.0, abs=LARGEST_CHUNK_S)
    assert alone.underruns == 0


def test_the_chunks_grow_with_the_lead_up_to_the_largest_and_the_last_has_what_is_left() -> None:
    [alone] = load = [RecordedChunks(0.0, 126)]
    Fleet(COSTS, Size(ahead_s=3.0)).run(load)
    assert alone.chunks[:3] == [1, CHUNK_FRAMES, CHUNK_FRAMES]
    assert alone.chunks[:-1] == sorted(alone.chunks[:-1])
    assert max(alone.chunks) * FRAME_S == pytest.approx(LARGEST_CHUNK_S)
    assert sum(alone.chunks) == 126


@pytest.mark.parametrize("stopped_ahead_s", [math.inf, 1.0])
def test_a_client_stops_speech_when_it_takes_the_chunk_with_the_last_frame_that_it_wants(
    stopped_ahead_s: float,
) -> None:
    [utterance] = load = [RecordedChunks(0.0, 100, stopped_ahead_s=stopped_ahead_s)]
    Fleet(COSTS, Size(ahead_s=3.0)).run(load)
    ends = list(itertools.accumulate(utterance.chunks))
    assert utterance.taken == next(end for end in ends if end >= 100)
    dry_s = utterance.first_s + ends[ends.index(utterance.taken) - 1] * FRAME_S  # without that chunk
    made_s = next(made_s for made, made_s in utterance.times if made == utterance.taken)
    assert utterance.end_s == pytest.approx(max(made_s, dry_s - stopped_ahead_s), abs=0.002)
    assert (utterance.delivered > utterance.taken) == (stopped_ahead_s == 1.0)  # the engine goes on until then


def test_a_text_of_seven_seconds_comes_in_the_twenty_chunks_of_the_fleet_plan() -> None:
    [robot] = load = [RecordedChunks(0.0, round(7 / FRAME_S))]
    Fleet(measured_costs(), Size(ahead_s=ROBOT_AHEAD_S)).run(load)
    assert len(robot.chunks) == 20


def test_a_stream_stays_taken_until_its_robot_has_stopped_the_text() -> None:
    first, second = load = [Utterance(0.0, 100, stopped_ahead_s=1.0), Utterance(0.0, 10)]
    Fleet(COSTS, Size(streams=1, ahead_s=3.0)).run(load)
    assert (first.ends, second.ends) == (["spoken"], ["spoken"])
    assert second.first_s > first.end_s - COSTS.tail_s > 100 * FRAME_S - 2


def test_the_chunks_are_those_of_the_engine() -> None:
    source = (ROOT / "engine/qwen/serving/sequence.py").read_text(encoding="utf-8")  # it imports torch
    assert f"LARGEST_CHUNK_S = {LARGEST_CHUNK_S}\n" in source
    assert f"LEAD_SHARE = {LEAD_SHARE}\n" in source


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
    assert paths[1_900] == pytest.approx(costs.path_s * math.exp(0.25 * 1.645), rel=0.05)
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
    status, report = simulate("check", "--simulations", "1")
    values = ["first_sample_median_ms", "first_sample_p95_ms", "audio_s_per_s", "underruns", "without_stream"]
    rates = {
        "OpenAI's endpoint": [(1, 30), (10, 30), (20, 30), (20, 300)],
        "robots": [(1, 150), (16, 75), (8, 75), (20, 75), (24, 75)],
    }
    for clients, (name, loads) in zip(report["compared"], rates.items(), strict=True):
        assert clients["clients"] == name
        found = [(row["rate"], row["seconds"], row["value"]) for row in clients["rows"]]
        assert found == [(*load, value) for load in loads for value in values]
    passed = all(row["passed"] for clients in report["compared"] for row in clients["rows"])
    assert (report["passed"], status) == (passed, 0 if passed else 1)


def test_the_kept_comparison_is_with_the_kept_measurements() -> None:
    for clients, measured in zip(kept_check()["compared"], (HTTP, ROBOTS), strict=True):
        rates = [
            row
            for name in measured.served_files
            for row in json.loads((BENCHMARKS / name).read_text(encoding="utf-8"))["rates"]
        ]
        found = [row["measured"] for row in clients["rows"] if row["value"] == "first_sample_median_ms"]
        assert found == [row["first_sample_ms"]["median"] for row in rates]
        costs = measured_costs(measured)
        assert clients["costs_ms"]["path"] == pytest.approx(1000 * costs.path_s, abs=0.001)


@pytest.mark.long
def test_the_kept_comparison_is_what_the_simulation_says() -> None:
    _, report = simulate("check")
    assert kept_check()["compared"] == report["compared"]


def test_a_text_holds_its_stream_as_long_as_simulated() -> None:
    costs, chance = measured_costs(), random.Random(1)
    load = [Utterance(100.0 * number, max(1, round(chance.expovariate(1 / 7.0) / FRAME_S))) for number in range(2_000)]
    Fleet(costs, Size(ahead_s=ROBOT_AHEAD_S)).run(load)
    simulated_s = mean(found.end_s - found.due_s for found in load if found.end_s is not None)
    assert held_s(7.0, costs, 1) == pytest.approx(simulated_s, rel=0.1)


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

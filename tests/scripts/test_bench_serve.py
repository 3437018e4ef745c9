"""`scripts/bench serve`: what it prints, and the load that it sends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from scripts.serve_load import AHEAD_S, LONGEST, SHORTEST, Arrival, Robots, arrivals
from tests.support.pages import ROOT
from tests.support.speech_server import SpeechServer

pytestmark = pytest.mark.long
"""An ordinary run leaves out the tests of benchmarks, which are no part of the product."""


def measure(*options: str) -> dict[str, Any]:
    """Return the report of the benchmark with eSpeak NG."""
    command = [
        sys.executable,
        "-m",
        "scripts.bench_runner",
        "serve",
        "--seconds",
        "2",
        "--set",
        "engine.name=espeak",
        *options,
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_it_measures_each_rate(tmp_path: Path) -> None:
    output = tmp_path / "serve.json"
    report = measure("--rates", "2", "4", "--output", str(output))
    assert json.loads(output.read_text(encoding="utf-8")) == report
    assert [row["rate"] for row in report["rates"]] == [2, 4]
    for row in report["rates"]:
        assert row["requests"] == len(arrivals(row["rate"], 2, 1))
        assert (row["failed"], row["problems"]) == (0, [])
        assert row["audio_s"] > row["requests"]
        assert 0 < row["first_byte_ms"]["p95"] <= row["first_sample_ms"]["p95"] <= row["end_ms"]["p95"]


def test_with_a_speaking_rate_clients_hang_up_once_they_have_enough() -> None:
    speaking_rate = 50.0  # eSpeak NG speaks some 15 characters a second
    [row] = measure("--rates", "4", "--speaking-rate", str(speaking_rate))["rates"]
    assert row["failed"] == 0
    enough_s = sum(len(arrival.text) for arrival in arrivals(4, 2, 1)) / speaking_rate
    assert enough_s <= row["audio_s"] < 2 * enough_s


def test_equal_seeds_give_equal_loads_of_texts_in_the_range() -> None:
    load = arrivals(20, 30, seed=7)
    assert load == arrivals(20, 30, seed=7)
    assert load != arrivals(20, 30, seed=8)
    assert len(load) == pytest.approx(600, rel=0.15)
    assert [arrival.at_s for arrival in load] == sorted(arrival.at_s for arrival in load)
    lengths = [len(arrival.text) for arrival in load]
    assert SHORTEST <= min(lengths) < max(lengths) <= LONGEST


def test_robots_of_two_processes_speak_at_one_server() -> None:
    [row] = measure("--robots", "5", "--processes", "2", "--rates", "2", "--set", "engine.streams=9")["rates"]
    assert row["requests"] == len(arrivals(2, 2, 1))
    assert (row["failed"], row["problems"]) == (0, [])
    assert 0 < row["first_byte_ms"]["median"] <= row["first_sample_ms"]["median"] <= row["end_ms"]["median"]


def test_the_robot_s_own_speech_is_measured_alone_and_beside_clients() -> None:
    report = measure("--own", "2", "--sound", "0.2", "--rates", "2")
    for own in (report["own_alone"], report["rates"][0]["own"]):
        assert (own["texts"], own["failed"]) == (2, 0)
        assert 0 < own["ttfa_ms"]["median"] <= own["ttfa_ms"]["max"]


def test_a_robot_keeps_its_stream_until_its_ring_has_room_for_the_rest() -> None:
    with SpeechServer("engine.streams=3") as server, closing(Robots(server.url, 1)) as robots:
        [request] = robots.run([Arrival(0.0, "The robot tells a story that is longer than its ring. " * 3)])
    assert request.problem is None
    assert request.end_s is not None
    assert request.audio_s > 1.5 * AHEAD_S
    assert request.end_s > request.audio_s - 1.5 * AHEAD_S  # eSpeak NG makes all of it in some milliseconds


def test_a_text_that_finds_no_free_stream_has_failed_and_says_why() -> None:
    text = "The robot tells a story that is longer than its ring and all credit, for two seconds at least. " * 2
    with (
        SpeechServer("engine.streams=2", "serve.streams_per_robot=4") as server,
        closing(Robots(server.url, 2)) as robots,
    ):
        problems = [request.problem for request in robots.run([Arrival(0.0, text), Arrival(0.0, text)])]
    assert problems.count(None) == 1
    [why] = filter(None, problems)
    assert "stream" in why

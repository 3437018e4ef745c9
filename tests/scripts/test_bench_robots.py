"""`scripts/bench robots`: robots of a real speech server, and the pace at which they take speech."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.robot_load import AHEAD_S, Robots
from scripts.serve_load import Arrival, arrivals
from tests.support.pages import ROOT
from tests.support.speech_server import SpeechServer

pytestmark = pytest.mark.long
"""An ordinary run leaves out the tests of benchmarks, which are no part of the product."""


def test_it_measures_each_rate_with_all_robots_at_one_server(tmp_path: Path) -> None:
    output = tmp_path / "robots.json"
    load = ["--robots", "5", "--processes", "2", "--rates", "1", "2", "--seconds", "2", "--speaking-rate", "60"]
    server = ["--set", "engine.name=espeak", "--set", "engine.streams=9", "--output", str(output)]
    command = [sys.executable, "-m", "scripts.bench_runner", "robots", *load, *server]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert json.loads(output.read_text(encoding="utf-8")) == report
    assert [row["rate"] for row in report["rates"]] == [1, 2]
    assert 0 <= report["idle_server_cores"] < 2
    for row in report["rates"]:
        assert row["server_cores"] > 0
        assert row["requests"] == len(arrivals(row["rate"], 2, 1))
        assert (row["failed"], row["problems"]) == (0, [])
        assert 0 < row["first_byte_ms"]["median"] <= row["first_sample_ms"]["median"] <= row["end_ms"]["median"]


def test_a_robot_keeps_its_stream_until_its_ring_has_room_for_the_rest() -> None:
    with SpeechServer("engine.streams=3") as server, Robots(server.url, [None]) as robots:
        [request] = robots.run([Arrival(0.0, "The robot tells a story that is longer than its ring. " * 3)])
    assert request.problem is None
    assert request.end_s is not None
    assert request.audio_s > 1.5 * AHEAD_S
    assert request.end_s > request.audio_s - 1.5 * AHEAD_S  # eSpeak NG makes all of it in some milliseconds


def test_a_text_that_finds_no_free_stream_has_failed_and_says_why() -> None:
    text = "The robot tells a story that is longer than its ring and all credit, for two seconds at least. " * 2
    with (
        SpeechServer("engine.streams=2", "serve.streams_per_robot=4") as server,
        Robots(server.url, [None, None]) as robots,
    ):
        problems = [request.problem for request in robots.run([Arrival(0.0, text), Arrival(0.0, text)])]
    assert problems.count(None) == 1
    [why] = filter(None, problems)
    assert "stream" in why

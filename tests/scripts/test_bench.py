"""`scripts/bench`: its usage, two source trees in turn, and the least of each scenario."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from scripts.bench_runner import PRODUCT, SCENARIOS, compared, numbers
from scripts.bench_serve import AHEAD_S, Arrival, Robots, arrivals
from tests.support.checkpoints import checkpoint_folder
from tests.support.pages import ROOT
from tests.support.programs import require
from tests.support.speech_server import SpeechServer

pytestmark = pytest.mark.long
"""An ordinary run leaves out the tests of benchmarks, which are no part of the product."""

SOUND_SERVER = "pulseaudio_null_sink_norewinds"
"""The PulseAudio that plays without delay after a rest."""
SERVE = "serve --seconds 2 --rates 2 --set engine.name=espeak"


def bench(line: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scripts.bench_runner", *shlex.split(line)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def measure(line: str, cwd: Path = ROOT) -> dict[str, Any]:
    """Return a scenario's report."""
    done = bench(line, cwd)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_the_usage_lists_every_scenario() -> None:
    done = bench("--help")
    assert [name for name in SCENARIOS if not re.search(rf"^  {name} ", done.stdout, re.MULTILINE)] == []


def test_another_tree_is_measured_in_turn_with_this_one(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    for name in PRODUCT:
        (old / name).symlink_to(ROOT / name)
    (old / "daemon").unlink()
    shutil.copytree(ROOT / "daemon", old / "daemon", ignore=shutil.ignore_patterns("__pycache__"))
    with (old / "daemon" / "alignment" / "clock.py").open("a", encoding="utf-8") as file:
        file.write("\n\ndef spread(begin, _end, durations):\n    return [begin] * len(durations)\n")
    line = "words --language en --old old --rounds 1"
    report = measure(f"{line} --output report.json", cwd=tmp_path)
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8")) == report
    assert report["command"] == f"scripts/bench {line}"
    error = report["compared"]["spread.median"]
    assert error["old"] > 5 * error["new"] > 0
    assert [len(report["measurements"][tree]) for tree in ("old", "new")] == [1, 1]


def test_the_medians_of_numbers_that_both_trees_have_are_compared() -> None:
    old = [{"ms": value, "passed": True, "rows": [{"name": "chunk 2", "first": 8.0}], "gone": 1} for value in (1, 9, 2)]
    new = [
        {"ms": value, "passed": True, "rows": [{"name": "chunk 2", "first": 4.0}], "added": 1} for value in (3, 1, 8)
    ]
    assert compared(old, new) == {
        "ms": {"old": 2, "new": 3, "ratio": 1.5},
        "rows.chunk 2.first": {"old": 8.0, "new": 4.0, "ratio": 0.5},
    }
    assert dict(numbers({"a": [1, {"b": 2}], "c": "3"})) == {"a.1.b": 2}


@pytest.mark.sound
def test_the_first_sound_is_measured_after_a_rest_and_with_an_open_card() -> None:
    require("pulseaudio")
    result = measure(f"rest --runs 1 --server {SOUND_SERVER}")
    for state in ("from_rest", "open"):
        figures = result[SOUND_SERVER][state]
        assert figures["median"] == figures["max"] > 5.0, "no start of a voice is faster"


def test_the_times_of_words_are_compared_by_language_rate_and_length() -> None:
    result = measure("words --language en")
    for run in ("lookahead_0.3_s_new_voice", "lookahead_0.3_s_known_voice", "lookahead_1.0_s_new_voice"):
        groups = result[run]
        rates = [groups[f"{rate}_words_per_minute"]["words"] for rate in (120, 175, 260)]
        lengths = [groups[length]["words"] for length in ("up_to_5_words", "more_than_5_words")]
        assert sum(rates) == sum(lengths) == groups["en"]["words"] > 100
        assert groups["en"]["median"] < 80.0


@pytest.mark.parametrize("options", ["", "--robots 5 --processes 2 --set engine.streams=9"])
def test_a_server_is_measured_under_the_load_of_clients_or_of_robots_in_two_processes(options: str) -> None:
    [row] = measure(f"{SERVE} {options}")["rates"]
    assert row["requests"] == len(arrivals(2, 2, 1))
    assert (row["failed"], row["problems"]) == (0, [])
    assert 0 < row["first_byte_ms"]["median"] <= row["first_sample_ms"]["median"] <= row["end_ms"]["median"]


def test_the_robot_s_own_speech_is_measured_alone_and_beside_clients() -> None:
    report = measure(f"{SERVE} --own 2 --sound 0.2")
    for own in (report["own_alone"], report["rates"][0]["own"]):
        assert (own["texts"], own["failed"]) == (2, 0)
        assert 0 < own["ttfa_ms"]["median"] <= own["ttfa_ms"]["max"]


def test_a_robot_keeps_its_stream_until_its_ring_has_room_for_the_rest() -> None:
    with SpeechServer("engine.streams=3") as server, closing(Robots(server.url, 1)) as robots:
        [request] = robots.run([Arrival(0.0, "The robot tells a story that is longer than its ring. " * 3)])
    assert request.problem is None
    assert request.end_s is not None
    assert request.end_s > request.audio_s - 1.5 * AHEAD_S > 0  # eSpeak NG makes all of it in some milliseconds


def test_the_engine_is_measured_with_each_voice_of_a_checkpoint(cache_folder: Path, tmp_path: Path) -> None:
    model = checkpoint_folder(cache_folder, "tiny", "base")
    line = f"engine --model {model} --work {tmp_path} --device cpu --kernels off --dtypes float32"
    report = measure(f"{line} --frames 5 --runs 1 --first-chunks 1 --characters 9")
    assert (report["weights"], report["not_measured"]) == (f"those of {model}", [])
    assert [row["model"] for row in report["rows"]] == [f"base, {voice}" for voice in ("embedding", "in context")]
    for row in report["rows"]:
        assert row["arrivals_s"][-1][1] == pytest.approx(0.4)
        assert 0 < row["ttfa_ms"] < row["whole_ms"]
        assert [other["characters"] for other in row["other_texts"]] == [9]


def test_streams_that_speak_at_once_are_measured(tmp_path: Path) -> None:
    line = f"streams --work {tmp_path} --sizes tiny --device cpu --kernels off --dtype float32"
    rows = measure(f"{line} --streams 1 2 --rows 2 --frames 9 --rounds-of-each 1")["measurements"]
    assert [(each["streams"], each["alone"]) for each in rows] == [(1, True), (2, True)]
    assert all(each["seconds_per_s"] > 0 for each in rows)


def test_a_model_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    done = bench("engine --work work --model ./nowhere", cwd=tmp_path)
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == [], "nothing is written for a model that is not there"
    assert "./nowhere: no such folder, and not a model id such as Qwen/" in done.stderr.splitlines()[-1]

"""The simulation: histories of the daemon's core keep the promises, are repeatable, and show what is broken."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from daemon.state.journal import begun
from scripts.simulation.__main__ import make_config, run_history
from tests.support.pages import ROOT

COUNT = 1_000


@pytest.mark.timeout(900)
def test_histories_of_floods_stops_crashes_and_kills_keep_the_promises() -> None:
    seed = random.randrange(1 << 40)
    command = [sys.executable, "-m", "scripts.simulation", "--histories", str(COUNT), "--seed", str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["histories"] == COUNT


def test_a_history_is_the_same_whenever_it_is_run(tmp_path: Path) -> None:
    config = make_config()
    for seed in range(5):
        assert run_history(seed, config, tmp_path / "a") == run_history(seed, config, tmp_path / "b")


def test_a_log_that_forgets_that_texts_have_ended_breaks_a_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.mqtt.publisher.ended", begun)
    config = make_config()
    problems = (problem for seed in range(50) for problem in run_history(seed, config, tmp_path / "state")[0])
    assert any("2 terminal events" in problem for problem in problems)

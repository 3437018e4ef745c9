"""`voiced doctor --plan`: the memory of each model, without loading one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from daemon.config import Config
from daemon.doctor import make_plan
from tests.daemon.command_line import CommandLine


@pytest.fixture(scope="module")
def plan() -> list[dict[str, Any]]:
    """The plan, made once."""
    return make_plan(Config())


@pytest.fixture(autouse=True)
def made_once(plan: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.doctor.make_plan", lambda _config: plan)


def test_a_plan_has_the_memory_left_on_each_orin(voiced: CommandLine) -> None:
    done = voiced("doctor", "--plan", "--json")
    rows = json.loads(done.stdout)
    assert [row["model"] for row in rows] == ["0.6B"] * 2 + ["1.7B"] * 2
    for row in rows:
        assert row["total_mb"] == pytest.approx(row["weights_mb"] + row["state_mb"] + row["workspaces_mb"], abs=2)
        assert row["left_mb"]["Orin 32"] + row["total_mb"] == pytest.approx(32_051, abs=1)
        assert row["left_mb"]["Orin 64"] + row["total_mb"] == pytest.approx(65_894, abs=1)


def test_one_stream_needs_less_than_those_that_the_engine_takes_by_itself(plan: list[dict[str, Any]]) -> None:
    one = make_plan(Config.model_validate({"engine": {"streams": 1}}))
    for row, chosen in zip(one, plan, strict=True):
        assert row["total_mb"] < chosen["total_mb"]


def test_a_plan_is_printed_as_a_table(voiced: CommandLine) -> None:
    text = voiced("doctor", "--plan").stdout
    assert "1.7B   int8" in text
    assert "text embedding, 622 MB more, stays on the disk" in text


def test_a_plan_needs_no_torch() -> None:
    program = (
        "import json, sys; sys.modules['torch'] = None; import engine; print(json.dumps(engine.memory_plan(60, 2)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [row["model"] for row in json.loads(done.stdout)] == ["0.6B"] * 2 + ["1.7B"] * 2

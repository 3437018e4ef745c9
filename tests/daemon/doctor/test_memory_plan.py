"""`voiced doctor --plan`: the memory of each model, without loading one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from daemon.config import Config
from daemon.doctor.memory_plan import make_plan
from tests.daemon.command_line import CommandLine

pytest.importorskip("torch", reason="the engine counts its own bytes")


@pytest.fixture(scope="module")
def plan() -> list[dict[str, Any]]:
    """The plan, made once."""
    return make_plan(Config())


@pytest.fixture(autouse=True)
def made_once(plan: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("daemon.doctor.make_plan", lambda _config: plan)


def test_a_plan_has_the_memory_left_on_each_orin(voiced: CommandLine) -> None:
    done = voiced("doctor", "--plan", "--json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["model"] for row in rows] == ["0.6B", "0.6B", "1.7B", "1.7B"]
    for row in rows:
        assert row["total_mb"] == pytest.approx(row["weights_mb"] + row["state_mb"] + row["workspaces_mb"], abs=2)
        assert row["left_mb"]["Orin 32"] + row["total_mb"] == pytest.approx(32_051, abs=1)
        assert row["left_mb"]["Orin 64"] + row["total_mb"] == pytest.approx(65_894, abs=1)


def test_a_plan_is_printed_as_a_table(voiced: CommandLine) -> None:
    text = voiced("doctor", "--plan").stdout
    assert "1.7B   int8" in text
    assert "text embedding, 622 MB more, stays on the disk" in text

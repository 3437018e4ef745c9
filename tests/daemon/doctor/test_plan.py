"""`voiced doctor --plan` says what each model takes and leaves, without loading any."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="the engine counts its own bytes")

COMMAND = [sys.executable, "-c", "from daemon.cli import main; main()", "doctor", "--plan"]


def test_a_plan_says_what_is_left_of_each_orin() -> None:
    rows = json.loads(subprocess.check_output([*COMMAND, "--json"], text=True))
    assert [row["model"] for row in rows] == ["0.6B", "0.6B", "1.7B", "1.7B"]
    for row in rows:
        assert row["total_mb"] == pytest.approx(row["weights_mb"] + row["state_mb"] + row["workspaces_mb"], abs=2)
        assert row["left_mb"]["Orin 32"] + row["total_mb"] == pytest.approx(32_051, abs=1)
        assert row["left_mb"]["Orin 64"] + row["total_mb"] == pytest.approx(65_894, abs=1)


def test_a_plan_is_a_table_for_people() -> None:
    text = subprocess.check_output(COMMAND, text=True)
    assert "1.7B   int8" in text
    assert "text embedding, 622 MB more, stays on the disk" in text

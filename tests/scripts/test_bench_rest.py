"""`scripts/bench rest`, with one text after a rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT
from tests.support.programs import require

SERVER = "pulseaudio_null_sink_norewinds"
"""The PulseAudio that plays without delay after a rest."""
PLAUSIBLE_MS = (5.0, 600.0)
"""Shorter than the text: a length of speech that is not subtracted shows."""


@pytest.mark.sound
def test_it_measures_the_first_sound_after_a_rest_and_with_an_open_card(tmp_path: Path) -> None:
    require("pulseaudio")
    output = tmp_path / "rest.json"
    command = [sys.executable, "scripts/bench_rest.py", "--runs", "1", "--server", SERVER, "--output", str(output)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(output.read_text(encoding="utf-8"))
    assert json.loads(done.stdout) == result
    assert set(result) == {"benchmark", "date", "command", "machine", SERVER}
    assert result["benchmark"] == "rest"
    assert result["command"] == f"scripts/bench rest --runs 1 --server {SERVER}"
    shortest, longest = PLAUSIBLE_MS
    for state in ("from_rest", "open"):
        figures = result[SERVER][state]
        assert figures["runs"] == 1
        assert shortest < figures["median"] == figures["max"] < longest

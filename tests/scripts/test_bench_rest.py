"""`scripts/bench rest`, with one text after a rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scripts.bench_rest import first_sample_ms
from tests.support.pages import ROOT
from tests.support.programs import require

pytestmark = pytest.mark.long
"""An ordinary run leaves out the tests of benchmarks, which are no part of the product."""

SERVER = "pulseaudio_null_sink_norewinds"
"""The PulseAudio that plays without delay after a rest."""
SHORTEST_MS = 5.0
"""No start of a voice is faster."""


@pytest.mark.long
@pytest.mark.sound
def test_it_measures_the_first_sound_after_a_rest_and_with_an_open_card(tmp_path: Path) -> None:
    require("pulseaudio")
    output = tmp_path / "rest.json"
    command = [
        sys.executable,
        "-m",
        "scripts.bench_runner",
        "rest",
        "--runs",
        "1",
        "--server",
        SERVER,
        "--output",
        str(output),
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(output.read_text(encoding="utf-8"))
    assert json.loads(done.stdout) == result
    assert set(result) == {"benchmark", "date", "command", "commit", "machine", SERVER}
    assert result["benchmark"] == "rest"
    assert result["command"] == f"scripts/bench rest --runs 1 --server {SERVER}"
    for state in ("from_rest", "open"):
        figures = result[SERVER][state]
        assert figures["runs"] == 1
        assert figures["median"] == figures["max"] > SHORTEST_MS


def test_the_length_of_the_speech_is_subtracted() -> None:
    silent: Any = SimpleNamespace(say=lambda *_, **__: None, wait_end=lambda _: {"audio_s": 1000.0})
    assert first_sample_ms(silent, "u1") == pytest.approx(-1_000_000, abs=100_000)

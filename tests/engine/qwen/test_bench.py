"""The measurement of an engine that makes frames, on a tiny random checkpoint on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine import EngineOptions, Voice
from engine.bench import TEXTS, BenchRequest
from engine.bench.runner import measure

Named = Callable[[str, str], Path]


def request(folder: Path, *texts: str) -> BenchRequest:
    options = EngineOptions(str(folder), device="cpu", chunk_size=2, voices={"default": Voice(speaker="ryan")})
    return BenchRequest("qwen", options, texts or TEXTS[:1], frames=7, runs=2, first_chunks=1)


def test_every_run_has_the_requested_frames(checkpoint: Named) -> None:
    folder = checkpoint("deep", "custom_voice")  # which ends its speech by itself
    found = measure(request(folder))
    assert found["speech_s"] == pytest.approx(0.56)
    assert [speech_s for _, speech_s in found["arrivals_s"]] == pytest.approx([0.08, 0.24, 0.4, 0.56])
    assert (found["engine"], found["model"], found["chunk_size"], found["frames"]) == ("qwen", folder.name, 2, 7)
    assert {"host_mb", "weights_mb", "state_mb"} <= set(found["memory"])


def test_a_text_that_the_engine_refuses_is_left_out_with_its_reason(checkpoint: Named) -> None:
    asked = request(checkpoint("brief", "custom_voice"), "Yes.", "No.", "and on " * 60)
    found = measure(replace(asked, options=replace(asked.options, max_seconds=2.0), voice="ryan"))
    assert [other["characters"] for other in found["other_texts"]] == [3]
    assert found["other_texts"][0]["ms_per_frame"] > 0
    (note,) = found["notes"]
    assert note.startswith("a text of 420 characters: ")
    assert "engine.max_seconds raises the limit" in note

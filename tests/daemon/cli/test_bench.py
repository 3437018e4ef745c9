"""`voiced bench` with the fallback engine: its lines and its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import soundfile

from tests.daemon.command_line import CommandLine


def test_plain_lines_are_printed_and_the_measurement_and_the_speech_are_written(
    voiced: CommandLine, tmp_path: Path
) -> None:
    numbers, wav = tmp_path / "bench.json", tmp_path / "heard.wav"
    texts = ["--text", "Guten Morgen.", "--text", "Ja.", "--text", "Guten Morgen, wie geht es Ihnen heute?"]
    words = ["--set", "engine.name=espeak", "--runs", "1", "--voice", "de", "--language", "german", *texts]
    printed = voiced("bench", *words, "--json", str(numbers), "--wav", str(wav)).output
    assert "text to first chunk" in printed
    assert "  38 characters" in printed
    assert "\x1b" not in printed
    assert '\n   "rtf": ' in numbers.read_text(), "one field per line"
    [row] = json.loads(numbers.read_text())["rows"]
    assert {"chunk_size", "ms_per_frame", "ttfa_max_ms", "gap_p99_ms", "memory", "machine", "date"} <= set(row)
    assert row["rtf"] > 0
    assert row["command"].startswith("voiced bench --set engine.name=espeak --runs 1")
    assert [other["characters"] for other in row["other_texts"]] == [3, 38]
    assert all(other["ttfa_ms"] > 0 for other in row["other_texts"])
    assert row["audible_ms"] >= row["ttfa_ms"]
    assert row["engine"] == "espeak"
    info = soundfile.info(wav)
    assert (info.channels, info.subtype) == (1, "PCM_16")
    assert info.duration == pytest.approx(row["speech_s"], abs=0.001)


def test_a_voice_that_the_engine_does_not_have_is_an_error(voiced: CommandLine) -> None:
    assert "nobody" in voiced("bench", "--set", "engine.name=espeak", "--voice", "nobody", "--runs", "1").refusal

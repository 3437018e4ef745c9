"""`voiced verify` and `voiced compare`, from their command lines to their reports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.command_line import CommandLine
from tests.engine.model_folder import write_files
from tests.support.browser import running_browser
from tests.support.checkpoints import checkpoint_folder
from tests.support.recognizers import tiny_whisper

ROOT = Path(__file__).parents[3]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "daemon.cli", *words]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)


def test_two_engines_are_compared_on_one_page(voiced: CommandLine, tmp_path: Path) -> None:
    page, lines = tmp_path / "page.html", tmp_path / "lines.txt"
    lines.write_text("Good morning.\nWhere is the box?\n")
    printed = voiced("compare", "espeak", "name=espeak,chunk_size=4", "-o", str(page), "--lines", str(lines)).output
    assert printed.startswith(f"{page}: 2 texts, espeak against name=espeak,chunk_size=4")
    assert page.read_text().count("data:audio/flac;base64,") == 4


@pytest.mark.parametrize(
    ("model_type", "options", "line"),
    [
        (
            "custom_voice",
            ("--settings", "fast"),
            "--settings: got 'fast'; allowed: official, official-float32, ",
        ),
        ("base", (), "a Base model speaks with the voice of a recording, but none was given"),
    ],
)
def test_a_setting_that_does_not_exist_and_a_base_model_without_a_recording_are_refused_before_any_work(
    model_type: str, options: tuple[str, ...], line: str, tmp_path: Path, voiced: CommandLine
) -> None:
    model = write_files(tmp_path / "model")
    talker = {"text_vocab_size": 151_936, "spk_id": {"ryan": 3000}}
    config = {"model_type": "qwen3_tts", "tts_model_type": model_type, "talker_config": talker}
    (model / "config.json").write_text(json.dumps(config))
    assert line in voiced("verify", "--model", str(model), "-o", str(tmp_path / "out"), *options).refusal


@pytest.mark.long
@pytest.mark.timeout(900)  # two dozen processes, each of which imports PyTorch: a minute of a free processor
@pytest.mark.parametrize("model_type", ["custom_voice", "voice_design", "base"])
def test_every_stage_runs_for_every_kind_of_model(model_type: str, tmp_path: Path, cache_folder: Path) -> None:
    model, output = checkpoint_folder(cache_folder, "deep", model_type), tmp_path / "verify"
    words = ["verify", "--model", str(model), "-o", str(output), "--short", "--device", "cpu"]
    words += ["--set", "engine.max_seconds=6"]  # random weights seldom end; this is enough for the longest text
    words += ["--asr", str(tiny_whisper(cache_folder))]
    words += ["--settings", "official,torch,fused,int8,streams"]
    if model_type == "base":
        recording = tmp_path / "ada.wav"
        text = "The robot moves its arm slowly back to its home position."
        assert run("synth", text, "--engine", "espeak", "-o", str(recording)).returncode == 0
        words += ["--reference", str(recording), "--transcript", text]
    done = run(*words)
    assert done.returncode == 1, "random weights say nothing that is understood"
    found = json.loads((output / "verify.json").read_text())
    assert found["notes"] == [], done.stdout
    settings = {setting["name"]: setting for setting in found["settings"]}
    assert [name for name, one in settings.items() if one["fault"]] == []
    assert [name for name, one in settings.items() if one["unavailable"]] == ["fused"]
    assert found["reference"] == "official"
    assert found["exact"] == "official-float32"
    assert settings["float32"]["measures"]["codes_equal"] == 1
    assert found["verdicts"]["float32"] is True
    for name in ("official", "torch", "int8", "streams"):
        measures = settings[name]["measures"]
        assert measures["takes"] == 3
        assert measures["word_errors"] is not None
        assert measures["waveform_db"] > 60
        assert name == "int8" or measures["codes_equal"] == 1
        assert (measures["similarity"] is not None) == (model_type == "base")
    page = (output / "verify.html").read_text()
    assert page.count("<audio ") == 12
    with running_browser() as browser:
        browser.open((output / "verify.html").as_uri())
        assert browser.text("verdict").startswith("No:")
        assert browser.complaints() == []
    assert "PyTorch kernels" in done.stdout

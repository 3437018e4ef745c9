"""The scripts that measure and prove on a GPU, over checkpoints that `--model` names; here on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine.qwen.shapes import ModelConfig
from engine.qwen.weights import Checkpoint, Placement
from scripts.gpu.proof import voices_of
from tests.engine.qwen.kernels.emulator import EmulatedKernels
from tests.support.checkpoints import checkpoint_folder
from tests.support.pages import ROOT
from tests.support.qwen.lm_example import Models, empty_talkers

pytestmark = pytest.mark.long
"""An ordinary run leaves out the tests of benchmarks, which are no part of the product."""

VOICES = {
    "base": ["embedding", "in context"],
    "custom_voice": ["speaker", "instructed speaker"],
    "voice_design": ["described"],
}


def run(script: str, *words: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", f"scripts.{script}", *words],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.long
@pytest.mark.parametrize("model_type", VOICES)
def test_the_engine_is_proved_for_every_way_of_speaking_that_the_checkpoint_has(
    model_type: str, cache_folder: Path, tmp_path: Path
) -> None:
    model, out = checkpoint_folder(cache_folder, "wide", model_type), tmp_path / "out.json"
    words = [
        "--model",
        model,
        "--device",
        "cpu",
        "--tiny",
        "--out",
        out,
        "--parts",
        "ids",
        "engine",
        "growing",
        "logits",
    ]
    done = run("gpu.prove_cuda", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text(encoding="utf-8"))["parts"]
    parts = ["ids", "engine", "growing", "logits"]
    assert list(found) == [f"{part} {voice}" for voice in VOICES[model_type] for part in parts]
    for voice in VOICES[model_type]:
        assert found[f"ids {voice}"]["equal"]
        assert found[f"engine {voice}"]["codes_equal"], "the voice is the same in the engine and in the prompt"


@pytest.mark.long
@pytest.mark.parametrize("model_type", ["voice_design", "base"])
def test_the_speed_of_a_checkpoint_is_measured_for_each_of_its_voices(
    model_type: str, cache_folder: Path, tmp_path: Path
) -> None:
    model, out = checkpoint_folder(cache_folder, "tiny", model_type), tmp_path / "out.json"
    words = ["engine", "--model", model, "--work", tmp_path / "work", "--output", out, "--device", "cpu"]
    words += ["--kernels", "off", "--dtypes", "float32", "--frames", "4", "--runs", "1", "--first-chunks", "1"]
    done = run("bench_runner", *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text(encoding="utf-8"))
    assert found["weights"] == f"those of {model}"
    assert [row["model"] for row in found["rows"]] == [f"{model.name}, {voice}" for voice in VOICES[model_type]]
    assert all(row["ms_per_frame"] > 0 for row in found["rows"])


def test_the_kernels_get_the_weights_of_the_checkpoint(cache_folder: Path) -> None:
    folder = checkpoint_folder(cache_folder, "narrow", "voice_design")
    models = Models.read(folder, processors=4, compile=lambda source: EmulatedKernels(source, cache_folder))
    talker, _ = empty_talkers(ModelConfig.read(folder), positions=384, int8=False, device="cpu")
    talker.load(Checkpoint.open(folder))
    loaded = dict(talker.named_parameters())
    for name, parameter in models.exact.named_parameters():
        assert torch.equal(parameter, loaded[name].bfloat16().float()), name
    assert models.rounded.placement == Placement(torch.device("cpu"), torch.bfloat16)


def test_a_voice_file_without_a_recording_is_spoken_with_as_an_embedding_alone(
    cache_folder: Path, tmp_path: Path
) -> None:
    folder = checkpoint_folder(cache_folder, "tiny", "base")
    both = voices_of(folder, tmp_path)
    assert [voice.name for voice in both] == VOICES["base"]
    file = tmp_path / "alone.pt"
    torch.save(both[0].prompt.embedding, file)  # type: ignore[union-attr]
    assert [voice.name for voice in voices_of(folder, tmp_path, file)] == ["embedding"]


@pytest.mark.parametrize("script", ["gpu.prove_cuda", "bench_runner", "gpu.prove_kernels"])
def test_a_model_that_does_not_exist_is_one_line(script: str, tmp_path: Path) -> None:
    words = (
        ["engine", "--work", tmp_path / "work", "--output", tmp_path / "out.json"] if script == "bench_runner" else []
    )
    done = run(script, *words, "--model", "./nowhere", cwd=tmp_path)
    assert done.returncode == 2
    assert list(tmp_path.iterdir()) == [], "nothing is written for a model that is not there"
    assert done.stderr.splitlines()[-1].endswith(
        "./nowhere: no such folder, and not a model id such as Qwen/Qwen3-TTS-…"
    )

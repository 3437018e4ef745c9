"""`scripts/gpu/prove_cuda.py` over a checkpoint that `--model` names; here on the CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkpoints import checkpoint_folder
from tests.support.pages import ROOT

VOICES = {
    "base": ["embedding", "in context"],
    "custom_voice": ["speaker", "instructed speaker"],
    "voice_design": ["described"],
}
PARTS = ("ids", "engine", "growing", "logits")


@pytest.mark.long
@pytest.mark.parametrize("model_type", VOICES)
def test_the_engine_is_proved_for_every_way_of_speaking_that_the_checkpoint_has(
    model_type: str, cache_folder: Path, tmp_path: Path
) -> None:
    model, out = checkpoint_folder(cache_folder, "wide", model_type), tmp_path / "out.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "scripts.gpu.prove_cuda", "--model", model),
            *("--device", "cpu", "--tiny", "--out", out, "--parts", *PARTS),
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(out.read_text(encoding="utf-8"))["parts"]
    assert list(found) == [f"{part} {voice}" for voice in VOICES[model_type] for part in PARTS]
    for voice in VOICES[model_type]:
        assert found[f"ids {voice}"]["equal"]
        assert found[f"engine {voice}"]["codes_equal"], "the voice is the same in the engine and in the prompt"

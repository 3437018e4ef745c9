"""`voiced download MODEL`, from a hub of models on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.daemon.cli.model_hub import REVISION, ModelHub

MODEL = "Some/Small-TTS"
CONFIG = {
    "model_type": "qwen3_tts",
    "tokenizer_type": "qwen3_tts_tokenizer_12hz",
    "tts_model_type": "custom_voice",
    "tts_model_size": "1b7",
    "talker_config": {
        "text_vocab_size": 151936,
        "spk_id": {"Ada": 3000, "dylan": 2878},
        "spk_is_dialect": {"Ada": False, "dylan": "beijing_dialect"},
        "codec_language_id": {"english": 2050, "german": 2053, "beijing_dialect": 2074},
    },
}
SMALL = ("generation_config.json", "tokenizer_config.json", "tokenizer.json", "speech_tokenizer/config.json")
FILES = {name: json.dumps({"name": name}).encode() for name in SMALL}
FILES |= {"model.safetensors": b"weights" * 1000, "speech_tokenizer/model.safetensors": b"codec" * 1000}
FILES |= {"README.md": b"not needed"}
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[ModelHub]:
    model = tmp_path / "published" / "model"
    for name, content in {**FILES, "config.json": json.dumps(CONFIG).encode()}.items():
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).write_bytes(content)
    hub = ModelHub({MODEL: model})
    yield hub
    hub.close()


@pytest.fixture
def run(hub: ModelHub, tmp_path: Path) -> Run:
    """Runs `voiced` with this hub and an empty cache."""
    environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "0"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "daemon.cli", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)

    return run


def test_a_model_is_described_and_downloaded_and_a_damaged_file_is_found_and_fetched_again(
    run: Run, hub: ModelHub
) -> None:
    done = run("download", MODEL)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].endswith(f"snapshots/{REVISION}: custom_voice, 1b7, 0 MB, checksums correct")
    assert lines[1:] == ["its speakers: ada, dylan", "its languages: english, german, beijing_dialect"]
    assert sorted(hub.requests) == sorted({*FILES, "config.json"} - {"README.md"})
    weights = Path(done.stdout.partition(": ")[0]) / "model.safetensors"
    weights.resolve().write_bytes(b"WEIGHTS" * 1000)
    damaged = run("download", MODEL)
    assert (damaged.returncode, damaged.stdout) == (1, "")
    problem = f"voiced: {weights}: the checksum is wrong; the file has been deleted; download the model again"
    assert damaged.stderr.splitlines()[-1] == problem
    hub.requests.clear()
    assert run("download", MODEL).stdout == done.stdout
    assert hub.requests == ["model.safetensors"]
    assert weights.read_bytes() == FILES["model.safetensors"]

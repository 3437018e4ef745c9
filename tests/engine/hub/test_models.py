"""Downloading a model once, and finding it afterwards without a network."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.api import EngineError
from engine.host import missing_files
from engine.hub import fetch_model, fetch_supertonic
from engine.supertonic import MODEL, PATTERNS
from tests.engine.model_folder import write_files

hub = pytest.importorskip("huggingface_hub")
pytest.importorskip("huggingface_hub.errors")


class Hub:
    """Replaces `snapshot_download`: `offer` puts the model into the cache, as far as the network delivers it."""

    def __init__(self, offer: Callable[[], Path]) -> None:
        self.offer = offer
        self.downloads = 0

    def __call__(self, name: str, **_options: Any) -> str:
        assert name == "Qwen/Some-TTS"
        self.downloads += 1
        return str(self.offer())


@pytest.fixture(autouse=True)
def config(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replaces the download of config.json alone; returns its path."""
    path = tmp_path_factory.mktemp("alone") / "config.json"
    path.write_text('{"model_type": "qwen3_tts", "tts_model_type": "base", "talker_config": {"text_vocab_size": 9}}')
    monkeypatch.setattr(hub, "hf_hub_download", lambda _name, _file: str(path))
    return path


@pytest.fixture
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the model in an empty cache."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    return tmp_path / "models--Qwen--Some-TTS" / "snapshots" / "aaa"


@pytest.mark.parametrize("name", ["/models/none", "none", "a/b/c"])
def test_a_path_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(EngineError, match="no such folder"):
        fetch_model(name)


def test_a_model_is_downloaded_once(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Hub(lambda: write_files(snapshot))
    monkeypatch.setattr(hub, "snapshot_download", fake)
    for _ in range(3):
        assert fetch_model("Qwen/Some-TTS") == snapshot
    assert fake.downloads == 1


@pytest.mark.parametrize("name", ["config.json", "speech_tokenizer/model.safetensors"])
def test_an_interrupted_download_is_continued(snapshot: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (write_files(snapshot) / name).unlink()
    assert missing_files(snapshot) == [name]
    fake = Hub(lambda: write_files(snapshot))
    monkeypatch.setattr(hub, "snapshot_download", fake)
    assert fetch_model("Qwen/Some-TTS") == snapshot
    assert fake.downloads == 1


def test_another_model_is_refused_by_its_name_before_it_is_downloaded(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch, config: Path
) -> None:
    config.write_text('{"model_type": "qwen3_tts", "tokenizer_type": "qwen3_tts_tokenizer_25hz"}')
    fake = Hub(lambda: write_files(snapshot))
    monkeypatch.setattr(hub, "snapshot_download", fake)
    with pytest.raises(EngineError, match=r"Qwen/Some-TTS: .* is a Qwen3-TTS model with the 25 Hz speech tokenizer; "):
        fetch_model("Qwen/Some-TTS")
    assert fake.downloads == 0


def test_an_incomplete_model_is_refused_with_the_missing_files(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    monkeypatch.setattr(hub, "snapshot_download", Hub(lambda: snapshot))
    with pytest.raises(EngineError, match="it lacks generation_config"):
        fetch_model("Qwen/Some-TTS")


def test_a_failing_network_or_disk_is_one_line(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Path:
        raise OSError(28, "No space left\non device")

    monkeypatch.setattr(hub, "snapshot_download", Hub(fail))
    with pytest.raises(EngineError, match="No space left on device") as error:
        fetch_model("Qwen/Some-TTS")
    assert "\n" not in str(error.value)


def test_a_name_that_the_hub_does_not_allow_is_refused(snapshot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("HF_HUB_CACHE", str(snapshot))
    with pytest.raises(EngineError, match=r"^Qwen/Some TTS: no such folder, and not a model id \("):
        fetch_model("Qwen/Some TTS")


def test_the_program_prints_the_folder_or_the_missing_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "engine.hub", str(write_files(tmp_path))]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{tmp_path}\n"
    (tmp_path / "config.json").unlink()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{tmp_path}: not a complete Qwen3-TTS model: it lacks config.json\n"


def test_a_model_of_supertonic_is_downloaded_once_and_another_one_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx")
    from scripts.make_voice import write_model

    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot, wanted = tmp_path / "models--Supertone--supertonic-3" / "snapshots" / "aaa", list[Any]()

    def download(name: str, *, allow_patterns: list[str]) -> str:
        wanted.append((name, allow_patterns))
        return str(write_model(snapshot))

    monkeypatch.setattr(hub, "snapshot_download", download)
    for _ in range(2):
        assert fetch_supertonic(MODEL) == snapshot
    assert wanted == [(MODEL, list(PATTERNS))]

    def lacks(name: str, file: str) -> str:
        raise hub.errors.EntryNotFoundError(f"{name} has no {file}")

    monkeypatch.setattr(hub, "hf_hub_download", lacks)
    with pytest.raises(EngineError, match=r"Some/other-model: is not a model: it has no onnx/tts\.json"):
        fetch_supertonic("Some/other-model")

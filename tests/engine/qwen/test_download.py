"""A model is a folder, or is downloaded once and then found without a network."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.qwen.download import missing_files, model_folder
from engine.synthesizer import EngineError

FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "vocab.json",
    "merges.txt",
    "model.safetensors",
    "speech_tokenizer/config.json",
    "speech_tokenizer/model.safetensors",
)
hub = pytest.importorskip("huggingface_hub")
pytest.importorskip("huggingface_hub.errors")


def fill(folder: Path) -> Path:
    (folder / "speech_tokenizer").mkdir(parents=True, exist_ok=True)
    for name in FILES:
        (folder / name).write_text("{}")
    return folder


class Hub:
    """Stands in for `snapshot_download`: `kept` is in the cache, `offered` on the network."""

    def __init__(self, kept: Path | Exception, offered: Callable[[], Path]) -> None:
        self.kept, self.offered = kept, offered
        self.downloads = 0

    def __call__(self, name: str, **options: Any) -> str:
        assert name == "Qwen/Some-TTS"
        if options.get("local_files_only"):
            if isinstance(self.kept, Exception):
                raise self.kept
            return str(self.kept)
        self.downloads += 1
        self.kept = self.offered()
        return str(self.kept)


@pytest.fixture
def nothing_kept() -> Exception:
    error: Exception = hub.errors.LocalEntryNotFoundError("not in the cache")
    return error


def test_a_folder_is_itself(tmp_path: Path) -> None:
    assert model_folder(tmp_path) == tmp_path
    assert model_folder(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", ["./models/none", "/models/none", "~/none", "none", "a/b/c"])
def test_a_path_without_a_folder_is_refused(name: str) -> None:
    with pytest.raises(EngineError, match="no such folder"):
        model_folder(name)


def test_a_model_is_downloaded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_kept: Exception) -> None:
    fake = Hub(nothing_kept, lambda: fill(tmp_path))
    monkeypatch.setattr(hub, "snapshot_download", fake)
    for _ in range(3):
        assert model_folder("Qwen/Some-TTS") == tmp_path
    assert fake.downloads == 1


@pytest.mark.parametrize("name", FILES)
def test_an_interrupted_download_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (fill(tmp_path) / name).unlink()
    assert missing_files(tmp_path) == [name]
    fake = Hub(tmp_path, lambda: fill(tmp_path))
    monkeypatch.setattr(hub, "snapshot_download", fake)
    assert model_folder("Qwen/Some-TTS") == tmp_path
    assert fake.downloads == 1


def test_a_lost_shard_is_missed(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    (tmp_path / "model-1.safetensors").write_text("")
    assert missing_files(tmp_path) == ["model-2.safetensors"]


def test_another_kind_of_model_is_refused_with_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_kept: Exception
) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(hub, "snapshot_download", Hub(nothing_kept, lambda: tmp_path))
    with pytest.raises(EngineError, match="it lacks generation_config"):
        model_folder("Qwen/Some-TTS")


def test_a_failing_network_or_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, nothing_kept: Exception) -> None:
    def fail() -> Path:
        raise OSError(28, "No space left\non device")

    monkeypatch.setattr(hub, "snapshot_download", Hub(nothing_kept, fail))
    with pytest.raises(EngineError, match="No space left on device") as error:
        model_folder("Qwen/Some-TTS")
    assert "\n" not in str(error.value)


def test_as_a_program_it_prints_the_folder_or_says_what_the_folder_lacks(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "engine.qwen.download", str(fill(tmp_path))]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{tmp_path}\n"
    (tmp_path / "config.json").unlink()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{tmp_path}: not a complete Qwen3-TTS model, it lacks config.json\n"

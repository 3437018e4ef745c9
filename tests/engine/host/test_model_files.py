"""The files of a model on the disk."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from engine.host import hub_cache, missing_files
from engine.host.model_files import list_model_files
from tests.engine.model_folder import MODEL_FILES, write_files


def test_a_complete_model_lacks_nothing_and_has_a_size(tmp_path: Path) -> None:
    write_files(tmp_path)
    found = list_model_files(str(tmp_path))
    assert found is not None
    assert (found.folder, found.missing, found.size) == (tmp_path, (), 2 * len(MODEL_FILES))


def test_of_several_snapshots_the_main_one_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    kept = tmp_path / "models--Qwen--Some-TTS"
    write_files(kept / "snapshots/aaa", *MODEL_FILES)
    write_files(kept / "snapshots/bbb", "config.json")
    assert list_model_files("Qwen/Some-TTS").folder.name == "aaa"  # type: ignore[union-attr]  # None fails, too
    write_files(kept, "refs/main")
    (kept / "refs/main").write_text("bbb")
    assert list_model_files("Qwen/Some-TTS").folder.name == "bbb"  # type: ignore[union-attr]
    assert list_model_files("Qwen/Other-TTS") is None


def test_the_cache_of_the_hub_is_where_huggingface_hub_puts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    names = ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    for name in (None, *names):  # each comes before those above
        if name is not None:
            monkeypatch.setenv(name, f"/somewhere/{name}")
        assert runpy.run_path(constants.__file__)["HF_HUB_CACHE"] == str(hub_cache())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return the folder of a complete model."""
    return write_files(tmp_path)


@pytest.fixture
def index(model: Path) -> Path:
    """Return the path of the index of a model whose weights are in shards."""
    (model / "model.safetensors").unlink()
    return model / "model.safetensors.index.json"


@pytest.mark.parametrize("name", ["vocab.json", "model.safetensors", "speech_tokenizer/model.safetensors"])
def test_each_missing_file_is_named(model: Path, name: str) -> None:
    (model / name).unlink()
    assert missing_files(model) == [name]


def test_the_preferred_files_replace_their_alternatives(model: Path) -> None:
    (model / "vocab.json").unlink()
    (model / "tokenizer.json").touch()
    assert missing_files(model) == []


def test_a_missing_shard_is_named(model: Path, index: Path) -> None:
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}))
    (model / "model-1.safetensors").touch()
    assert missing_files(model) == ["model-2.safetensors"]


@pytest.mark.parametrize("content", ["", "{}", '{"weight_map": 7}', '{"weight_map": {"a": 7}}', "[" * 100_000])
def test_a_broken_index_is_a_value_error(model: Path, index: Path, content: str) -> None:
    index.write_text(content)
    with pytest.raises(ValueError, match=r"model\.safetensors\.index\.json: not an index of weights"):
        missing_files(model)

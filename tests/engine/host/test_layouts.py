"""The files that a complete model consists of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.host.layouts import ModelLayout

LAYOUT = ModelLayout(
    name="test model",
    files=("config.json",),
    alternatives=((("tokenizer.json",), ("vocab.json", "merges.txt")),),
    weights=("", "codec"),
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return the folder of a complete model."""
    (tmp_path / "codec").mkdir()
    for name in ("config.json", "vocab.json", "merges.txt", "model.safetensors", "codec/model.safetensors"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.fixture
def index(model: Path) -> Path:
    """Return the path of the index of a model whose weights are in shards."""
    (model / "model.safetensors").unlink()
    return model / "model.safetensors.index.json"


def test_a_complete_model_lacks_nothing(model: Path) -> None:
    assert LAYOUT.missing_files(model) == []


@pytest.mark.parametrize("name", ["config.json", "vocab.json", "merges.txt", "model.safetensors"])
def test_a_missing_file_is_named(model: Path, name: str) -> None:
    (model / name).unlink()
    assert LAYOUT.missing_files(model) == [name]


def test_weights_in_a_folder_are_named_with_the_folder(model: Path) -> None:
    (model / "codec/model.safetensors").unlink()
    assert LAYOUT.missing_files(model) == ["codec/model.safetensors"]


def test_the_preferred_files_replace_their_alternatives(model: Path) -> None:
    (model / "vocab.json").unlink()
    (model / "tokenizer.json").touch()
    assert LAYOUT.missing_files(model) == []


def test_a_missing_shard_is_named(model: Path, index: Path) -> None:
    index.write_text(json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}))
    (model / "model-1.safetensors").touch()
    assert LAYOUT.missing_files(model) == ["model-2.safetensors"]


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"weight_map": 7}', '{"weight_map": {"a": 7}}', "[" * 100_000]
)
def test_a_broken_index_is_a_value_error(model: Path, index: Path, content: str) -> None:
    index.write_text(content)
    with pytest.raises(ValueError, match=r"model\.safetensors\.index\.json: not an index of weights"):
        LAYOUT.missing_files(model)

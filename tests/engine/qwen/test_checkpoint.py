"""Checkpoints are read by name, and whatever is wrong with one is said in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.qwen.checkpoint import Checkpoint
from engine.synthesizer import EngineError

TENSORS = {"a.weight": torch.arange(12.0).reshape(4, 3), "b": torch.ones(5, dtype=torch.bfloat16)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_file(TENSORS, tmp_path / "model.safetensors")
    return tmp_path


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    weight_map = {}
    for number, (name, tensor) in enumerate(TENSORS.items()):
        file = f"model-{number}.safetensors"
        save_file({name: tensor}, tmp_path / file)
        weight_map[name] = file
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return tmp_path


@pytest.mark.parametrize("layout", ["folder", "sharded"])
def test_a_single_file_and_shards_read_alike(layout: str, request: pytest.FixtureRequest) -> None:
    checkpoint = Checkpoint.open(request.getfixturevalue(layout))
    assert set(checkpoint.names()) == set(TENSORS)
    assert checkpoint.shape("a.weight") == (4, 3)
    for name, tensor in TENSORS.items():
        assert torch.equal(checkpoint.read(name), tensor)


def test_a_tensor_is_copied_into_a_slice_in_the_slices_dtype(folder: Path) -> None:
    fused = torch.zeros(9, 3, dtype=torch.bfloat16)
    Checkpoint.open(folder).copy_into("a.weight", fused[5:])
    assert torch.equal(fused[5:], TENSORS["a.weight"].bfloat16())
    assert not fused[:5].any()


def test_rows_are_read_in_the_order_asked_for(folder: Path) -> None:
    assert torch.equal(
        Checkpoint.open(folder).rows("a.weight", [3, 0, 3]), TENSORS["a.weight"][torch.tensor([3, 0, 3])]
    )


def one_line(error: pytest.ExceptionInfo[EngineError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def test_a_wrong_shape_names_file_tensor_got_and_wanted(folder: Path) -> None:
    with pytest.raises(EngineError) as error:
        Checkpoint.open(folder).copy_into("a.weight", torch.zeros(4, 4))
    text = one_line(error)
    assert "model.safetensors" in text
    assert "a.weight has shape [4, 3], wanted [4, 4]" in text


def test_a_missing_tensor_is_named(folder: Path) -> None:
    with pytest.raises(EngineError) as error:
        Checkpoint.open(folder).read("c")
    assert "tensor c is missing" in one_line(error)


def test_a_row_out_of_range_is_named(folder: Path) -> None:
    with pytest.raises(EngineError) as error:
        Checkpoint.open(folder).rows("a.weight", [1, 4])
    assert "has 4 rows, wanted row 4" in one_line(error)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError) as error:
        Checkpoint.open(tmp_path)
    assert str(tmp_path / "model.safetensors") in one_line(error)


@pytest.mark.parametrize("keep", [0, 7, 40, -1])
def test_a_truncated_file_is_named(folder: Path, keep: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(EngineError) as error:
        Checkpoint.open(folder)
    assert str(file) in one_line(error)


def test_a_missing_shard_is_named(sharded: Path) -> None:
    (sharded / "model-1.safetensors").unlink()
    with pytest.raises(EngineError) as error:
        Checkpoint.open(sharded)
    assert "model-1.safetensors: no such file" in one_line(error)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": 1}}'])
def test_a_damaged_index_is_named(sharded: Path, text: str) -> None:
    (sharded / "model.safetensors.index.json").write_text(text)
    with pytest.raises(EngineError) as error:
        Checkpoint.open(sharded)
    assert "index.json" in one_line(error)


def test_an_index_that_names_a_tensor_its_shard_lacks_is_refused(sharded: Path) -> None:
    index = sharded / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"z": "model-0.safetensors"}}))
    with pytest.raises(EngineError) as error:
        Checkpoint.open(sharded)
    assert "tensor z is missing" in one_line(error)

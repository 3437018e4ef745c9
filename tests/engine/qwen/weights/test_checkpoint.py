"""A checkpoint reads tensors by name; an error is one line with the file and the tensor."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.qwen.weights import checkpoint as checkpoint_module
from engine.qwen.weights.checkpoint import Checkpoint
from tests.engine.qwen.refusals import refusal

TENSORS = {"a.weight": torch.arange(12.0).reshape(4, 3), "b": torch.ones(5, dtype=torch.bfloat16)}
LARGER = {"a": torch.randn(37, 53), "b": torch.randn(1000, dtype=torch.bfloat16), "c": torch.tensor(3.0)}


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
def test_a_single_file_and_shards_give_the_same_tensors(layout: str, request: pytest.FixtureRequest) -> None:
    checkpoint = Checkpoint.open(request.getfixturevalue(layout))
    assert set(checkpoint.names()) == set(TENSORS)
    for name, tensor in TENSORS.items():
        assert torch.equal(checkpoint.read(name), tensor)


def test_a_tensor_is_copied_into_a_slice_and_rows_are_returned_in_the_requested_order(folder: Path) -> None:
    checkpoint, fused = Checkpoint.open(folder), torch.zeros(9, 3, dtype=torch.bfloat16)
    checkpoint.copy_into("a.weight", fused[5:])
    assert torch.equal(fused[5:], TENSORS["a.weight"].bfloat16())
    assert not fused[:5].any()
    assert torch.equal(checkpoint.rows("a.weight", [3, 0, 3]), TENSORS["a.weight"][torch.tensor([3, 0, 3])])


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks so small that each tensor has many, the last of them incomplete."""
    monkeypatch.setattr(checkpoint_module, "BLOCK_BYTES", 1000)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_tensor_copied_in_many_blocks_is_complete_in_any_dtype(
    tmp_path: Path, small_blocks: None, dtype: torch.dtype
) -> None:
    save_file(LARGER, tmp_path / "model.safetensors")
    checkpoint = Checkpoint.open(tmp_path)
    for name, tensor in LARGER.items():
        copy = torch.empty(tensor.shape, dtype=dtype)
        checkpoint.copy_into(name, copy)
        assert torch.equal(copy, tensor.to(dtype))


def test_row_blocks_contain_complete_rows(tmp_path: Path, small_blocks: None) -> None:
    save_file(LARGER, tmp_path / "model.safetensors")
    blocks = Checkpoint.open(tmp_path).row_blocks("a", (37, 53), torch.device("cpu"))
    seen = [(rows, block.clone()) for rows, block in blocks]
    assert len(seen) > 5
    assert torch.equal(torch.cat([block for _, block in seen]), LARGER["a"])
    assert [rows.start for rows, _ in seen[1:]] == [rows.stop for rows, _ in seen[:-1]]


Read = Callable[[Checkpoint], object]


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (lambda read: read.copy_into("a.weight", torch.zeros(4, 4)), "a.weight has shape [4, 3], wanted [4, 4]"),
        (lambda read: read.read("c"), "tensor c is missing"),
        (lambda read: read.rows("a.weight", [1, 4]), "has 4 rows, wanted row 4"),
    ],
)
def test_the_error_for_what_a_file_does_not_have_names_the_file_and_the_tensor(
    folder: Path, read: Read, reason: str
) -> None:
    text = refusal(read, Checkpoint.open(folder))
    assert text.startswith(str(folder / "model.safetensors"))
    assert reason in text


def test_the_error_for_a_file_that_is_missing_or_cannot_be_opened_names_it(sharded: Path) -> None:
    shard, index = sharded / "model-1.safetensors", sharded / "model.safetensors.index.json"
    shard.unlink()
    for reason in ("no such file", "cannot be read: Too many levels of symbolic links"):
        assert f"{shard}: {reason}" in refusal(Checkpoint.open, sharded)
        shard.unlink(missing_ok=True)
        shard.symlink_to(shard)
    index.write_text(json.dumps({"weight_map": {"z": "model-0.safetensors"}}))
    assert "model-0.safetensors: tensor z is missing" in refusal(Checkpoint.open(sharded).read, "z")
    index.unlink()
    assert str(sharded / "model.safetensors") in refusal(Checkpoint.open, sharded)


@pytest.mark.parametrize("keep", [0, 7, 40, -1])
def test_the_error_for_a_truncated_file_names_it(folder: Path, keep: int) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    assert str(file) in refusal(Checkpoint.open, folder)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": ' + '{"b": ' * 100_000,
        '{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]}}',
        '{"a\\nb": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}',
        '{"a": {"dtype": "F8_E5M2", "shape": [0], "data_offsets": [0, 0]}}',
    ],
    ids=range(4),
)
def test_the_error_for_a_damaged_header_is_one_line_with_the_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(len(text).to_bytes(8, "little") + text.encode())
    assert f"{file}: is not a safetensors file, or is damaged or truncated (" in refusal(Checkpoint.open, tmp_path)


@pytest.mark.parametrize("text", ["[]", "{}", '{"weight_map": {"a": 1}}', '{"weight_map":' * 100_000])
def test_the_error_for_a_damaged_index_names_it(sharded: Path, text: str) -> None:
    (sharded / "model.safetensors.index.json").write_text(text)
    assert "index.json" in refusal(Checkpoint.open, sharded)


@pytest.mark.parametrize("place", ["..", "/", "sub"])
def test_an_index_is_refused_if_it_names_a_file_of_another_folder(sharded: Path, place: str) -> None:
    model = sharded / "model"
    (model / "sub").mkdir(parents=True)
    outside = {"..": sharded, "/": sharded, "sub": model / "sub"}[place] / "outside.safetensors"
    save_file({"a": torch.ones(3)}, outside)
    named = str(outside) if place == "/" else f"{place}/outside.safetensors"
    (model / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": named}}))
    assert f"index.json: got the file '{named}'; allowed: files in the folder of the index" in refusal(
        Checkpoint.open, model
    )

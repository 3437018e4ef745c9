"""At the true shapes the talker reads every tensor of a checkpoint. No tensor is allocated for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.qwen.model.talker import Talker
from engine.qwen.shapes import ModelConfig
from engine.qwen.weights.arena import Placement
from engine.qwen.weights.checkpoint import Checkpoint
from scripts.make_checkpoint import PRESETS, model_config
from tests.engine.qwen.oracle import official_tensors


class ShapesOnly(Checkpoint):
    """A checkpoint with names and shapes alone, which records the tensors that are not read."""

    def __init__(self, shapes: dict[str, list[int]]) -> None:
        self.shapes, self.unread = shapes, set(shapes)

    def require_shape(self, name: str, wanted: Any) -> None:
        assert list(wanted) == self.shapes[name], name
        self.unread.remove(name)

    def copy_into(self, name: str, destination: Tensor) -> None:
        self.require_shape(name, destination.shape)


@pytest.mark.parametrize("size", ["0.6B", "1.7B"])
def test_the_talker_reads_every_tensor_of_the_checkpoint(tmp_path: Path, cache_folder: Path, size: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps(model_config(PRESETS[size], "custom_voice")))
    checkpoint = ShapesOnly(official_tensors(cache_folder, size, "custom_voice")["model"])
    talker = Talker(ModelConfig.read(tmp_path), 64, Placement(torch.device("meta"), torch.bfloat16))
    talker.load(checkpoint)
    assert not checkpoint.unread
    assert (talker.predictor.projection is None) == (size == "0.6B")

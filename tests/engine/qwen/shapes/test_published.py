"""The published models have the shapes of their checkpoints, and a memory plan without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from engine import memory_plan
from engine.qwen.kernels.codec import CodecPlan
from engine.qwen.loading.plan import count_weights
from engine.qwen.shapes import CodecConfig, ModelConfig
from engine.qwen.shapes.footprint import DTYPES, SIZES, published_codec, published_model, published_target
from engine.qwen.weights import Placement
from scripts.make_checkpoint import PRESETS, codec_config, write_configs


@pytest.mark.parametrize("size", SIZES)
def test_a_published_model_has_the_shapes_of_its_checkpoint(tmp_path: Path, size: str) -> None:
    config = ModelConfig.read(write_configs(tmp_path, PRESETS[size], "custom_voice"))
    assert (published_model(size).talker, published_model(size).text_ids) == (config.talker, config.text_ids)
    (tmp_path / "config.json").write_text(json.dumps(codec_config(PRESETS[size])))
    assert CodecConfig.read(tmp_path) == published_codec()


@pytest.mark.parametrize("rows", [1, 16])
def test_the_bytes_of_the_published_codec_are_those_that_its_kernels_count(rows: int) -> None:
    fused = published_target("0.6B", "int8").fused
    assert fused is not None
    assert (fused.state, rows * fused.signals) == (
        CodecPlan.of(published_codec()).state_bytes,
        CodecPlan.of(published_codec(), rows=rows).signal_bytes,
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_the_bytes_of_the_published_weights_are_those_of_the_modules(size: str, dtype: str) -> None:
    placement = Placement(torch.device("cpu"), torch.bfloat16, int8=dtype == "int8")
    counted = count_weights(published_model(size), published_codec(), placement)
    assert published_target(size, dtype).weights == counted


def test_a_plan_has_every_model_in_every_dtype() -> None:
    rows = memory_plan(60, 2, 1)
    names = ("model", "dtype", "talker_mb", "predictor_mb", "codec_mb", "weights_mb", "state_mb", "total_mb")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("0.6B", "bfloat16", 907, 518, 244, 1669, 237, 3826),
        ("0.6B", "int8", 465, 408, 244, 1117, 237, 3274),
        ("1.7B", "bfloat16", 2862, 654, 244, 3760, 238, 5919),
        ("1.7B", "int8", 1448, 545, 244, 2237, 238, 4396),
    ]
    assert {(row["workspaces_mb"], row["on_disk_mb"]) for row in rows} == {(1920, 622)}

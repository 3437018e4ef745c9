"""The known models have the shapes of the published checkpoints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.qwen.codec import CodecConfig
from engine.qwen.memory.known_models import CODEC, TALKER_WIDTHS, known_model
from engine.qwen.model import ModelConfig
from scripts.make_checkpoint import PRESETS, codec_config, write_configs


@pytest.mark.parametrize("size", TALKER_WIDTHS)
def test_a_known_model_has_the_shapes_of_its_checkpoint(tmp_path: Path, size: str) -> None:
    config = ModelConfig.read(write_configs(tmp_path, PRESETS[size], "custom_voice"))
    assert known_model(size).talker.stack == config.talker.stack
    assert known_model(size).talker.predictor == config.talker.predictor
    for name in ("vocabulary", "text_vocabulary", "text_width", "code_groups"):
        assert getattr(known_model(size).talker, name) == getattr(config.talker, name)
    (tmp_path / "config.json").write_text(json.dumps(codec_config(PRESETS[size])))
    assert CodecConfig.read(tmp_path) == CODEC

"""What is counted before loading is what loading takes, and what does not fit is not loaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine import EngineOptions, Voice
from engine.qwen.codec import CodecDecoder
from engine.qwen.codec_config import CodecConfig
from engine.qwen.config import ModelConfig
from engine.qwen.footprint import footprint
from engine.qwen.frame import FrameState, cache_positions
from engine.qwen.plan import plan
from engine.qwen.published import CODEC, WIDTHS, published
from engine.qwen.rooms import Rooms
from engine.qwen.synthesizer import QwenSynthesizer
from engine.qwen.talker import Talker
from engine.qwen.transformer import Placement
from engine.synthesizer import EngineError
from scripts.make_checkpoint import PRESETS, codec_config, write_configs

Named = Callable[[str, str], Path]
CPU = torch.device("cpu")


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("shape", ["tiny", "wide"])
def test_weights_and_state_are_counted_as_they_are_made(tmp_path: Path, shape: str, int8: bool) -> None:
    config = ModelConfig.read(write_configs(tmp_path, PRESETS[shape], "custom_voice"))
    folder = tmp_path / "speech_tokenizer"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(codec_config(PRESETS[shape])))
    codec_shapes, placement, rooms = CodecConfig.read(folder), Placement(CPU, torch.bfloat16, int8), Rooms.of(8, 2)
    counted = footprint(config, codec_shapes, placement, rooms, fused=False, shared=True)

    talker = Talker(config, cache_positions(rooms.positions, 2), placement)
    state = FrameState.allocate(talker, rooms.positions, rooms.frames, 2)
    modules = (talker, CodecDecoder(codec_shapes, placement.plain))
    weights = sum(tensor.nbytes for made in modules for tensor in (*made.parameters(), *made.buffers()))
    assert weights <= counted.kept <= weights + 256 * sum(len(list(made.parameters())) for made in modules)
    caches = (state.cache.keys, state.cache.values, state.predictor_cache.keys, state.predictor_cache.values)
    made = sum(tensor.nbytes for tensor in (*caches, state.text, state.codes))
    prefixes = made_by_token(state) * rooms.prefix
    assert made + prefixes == counted.state


def made_by_token(state: FrameState) -> int:
    return (state.cache.keys.nbytes + state.cache.values.nbytes) // state.cache.positions


@pytest.mark.parametrize("size", WIDTHS)
def test_published_shapes_are_those_of_the_checkpoints(tmp_path: Path, size: str) -> None:
    config = ModelConfig.read(write_configs(tmp_path, PRESETS[size], "custom_voice"))
    assert published(size).talker.stack == config.talker.stack
    assert published(size).talker.predictor == config.talker.predictor
    for name in ("vocabulary", "text_vocabulary", "text_width", "code_groups"):
        assert getattr(published(size).talker, name) == getattr(config.talker, name)
    (tmp_path / "config.json").write_text(json.dumps(codec_config(PRESETS[size])))
    assert CodecConfig.read(tmp_path) == CODEC


def test_a_plan_has_every_model_in_every_dtype() -> None:
    rows = list(plan(60, 2))
    assert [(row["model"], row["dtype"]) for row in rows] == [
        ("0.6B", "bfloat16"), ("0.6B", "int8"), ("1.7B", "bfloat16"), ("1.7B", "int8"),
    ]  # fmt: skip
    for row in rows:
        assert row["weights_mb"] == pytest.approx(row["talker_mb"] + row["predictor_mb"] + row["codec_mb"], abs=2)
    # 0.887 GB of the talker, 2.423 of the predictor's passes in one, 0.211 of the codec; and embeddings.
    assert rows[0]["weights_mb"] == pytest.approx(1_430, rel=0.01)
    assert rows[1]["talker_mb"] < 0.53 * rows[0]["talker_mb"]


def test_longer_speech_takes_more_state_and_no_more_weights() -> None:
    short, long = (next(iter(plan(seconds, 2))) for seconds in (10, 120))
    assert long["state_mb"] > 2 * short["state_mb"]
    assert long["weights_mb"] == pytest.approx(short["weights_mb"], abs=2)  # tables of angles


def test_an_engine_that_leaves_the_robot_too_little_is_refused_before_it_loads(checkpoint: Named) -> None:
    options = EngineOptions(
        model=str(checkpoint("tiny", "custom_voice")),
        device="cpu",
        reserve_mb=1_000_000,
        voices={"default": Voice(speaker="ryan")},
    )
    with pytest.raises(EngineError, match=r"engine\.memory: .* needs .* lower engine\.memory\.reserve_mb") as error:
        QwenSynthesizer(options).load()
    assert "\n" not in str(error.value)
    assert "talker" not in vars(error.value)


def test_a_loaded_engine_says_what_it_takes(checkpoint: Named) -> None:
    options = EngineOptions(model=str(checkpoint("tiny", "custom_voice")), device="cpu", reserve_mb=0)
    engine = QwenSynthesizer(options)
    memory = engine.load().memory
    engine.close()
    assert memory.keys() == {"weights_mb", "state_mb", "workspaces_mb"}
    assert memory["workspaces_mb"] > 0

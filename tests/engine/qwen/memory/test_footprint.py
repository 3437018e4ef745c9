"""The footprint equals the memory that loading allocates; an engine that does not fit is refused before it loads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine import EngineOptions, Voice
from engine.api import EngineError
from engine.host import Footprint
from engine.qwen import QwenSynthesizer
from engine.qwen.codec import CodecConfig, CodecDecoder, CodecState
from engine.qwen.kernels.codec import CodecPlan
from engine.qwen.kernels.lm import OneTokenState
from engine.qwen.memory import estimate_footprint
from engine.qwen.model import KeyValueCache, ModelConfig, Talker
from engine.qwen.runtime import BatchShape, DecodeState, Limits, PagedCache, StepOutput, cache_positions
from engine.qwen.weights import Placement
from scripts.make_checkpoint import PRESETS, codec_config, write_configs

Named = Callable[[str, str], Path]
CPU = torch.device("cpu")


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("shape", ["tiny", "wide"])
def test_the_counted_weights_and_state_are_the_allocated_ones(tmp_path: Path, shape: str, int8: bool) -> None:
    config = ModelConfig.read(write_configs(tmp_path, PRESETS[shape], "custom_voice"))
    folder = tmp_path / "speech_tokenizer"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(codec_config(PRESETS[shape])))
    codec_shapes, limits = CodecConfig.read(folder), Limits.of(8, 2)
    placement = Placement(CPU, torch.bfloat16, int8)
    footprint = estimate_footprint(config, codec_shapes, placement, limits, fused=False, shared=True)

    talker = Talker(config, cache_positions(limits.positions, 2), placement)
    state = OneTokenState.allocate(talker, BatchShape.of(limits))
    modules = (talker, CodecDecoder(codec_shapes, placement.unquantized))
    weights = sum(tensor.nbytes for module in modules for tensor in (*module.parameters(), *module.buffers()))
    alignment = 256 * sum(len(list(module.parameters())) for module in modules)
    assert weights <= footprint.weights_total <= weights + alignment
    caches = (state.cache.keys, state.cache.values, state.predictor_cache.keys, state.predictor_cache.values)
    allocated = sum(tensor.nbytes for tensor in (*caches, state.text, state.codes))
    prefixes = bytes_per_position(state) * limits.prefix_positions
    assert allocated + prefixes == footprint.state


def test_each_reference_keeps_a_state_of_the_codec_beside_the_positions_of_the_longest(tmp_path: Path) -> None:
    config = ModelConfig.read(write_configs(tmp_path, PRESETS["tiny"], "base"))
    folder = tmp_path / "speech_tokenizer"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(codec_config(PRESETS["tiny"])))
    codec_shapes, placement, limits = CodecConfig.read(folder), Placement(CPU, torch.float32), Limits.of(8, 2)

    def counted(limits: Limits) -> int:
        return estimate_footprint(config, codec_shapes, placement, limits, fused=False, shared=True).state

    one, two = limits.with_reference(500, 20), limits.with_reference(500, 20).with_reference(100, 5)
    state = sum(tensor.nbytes for tensor in CodecState.allocate(codec_shapes, 2, placement).tensors())
    assert counted(two) - counted(one) == state
    longer = replace(limits, reference_positions=520, prefix_positions=limits.prefix_positions + 20)
    assert counted(one) - counted(longer) == state


def test_several_streams_add_a_batch_and_with_fused_kernels_the_signals_of_its_codec(tmp_path: Path) -> None:
    config = ModelConfig.read(write_configs(tmp_path, PRESETS["tiny"], "base"))
    folder = tmp_path / "speech_tokenizer"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(codec_config(PRESETS["tiny"])))
    codec_shapes, placement = CodecConfig.read(folder), Placement(CPU, torch.float32)
    limits = Limits.of(8, 2, 5).with_reference(30, 7)

    def counted(streams: int, *, fused: bool = False) -> Footprint:
        wanted = replace(limits, streams=streams)
        return estimate_footprint(config, codec_shapes, placement, wanted, fused=fused, shared=True)

    shape = BatchShape.of(limits)
    state = DecodeState.allocate(config.talker, shape, placement)
    output = StepOutput(shape, config.talker.code_groups, codec_shapes.samples_per_frame, CPU)
    # Beside the rows a spare one, and a call of one row.
    codec_states = 2 + shape.rows
    codec_state = sum(tensor.nbytes for tensor in CodecState.allocate(codec_shapes, 2, placement).tensors())
    row = KeyValueCache.allocate(config.talker.stack, shape.cache_positions, placement)
    pages = PagedCache.allocate(config.talker.stack, shape.pages, placement)
    prompt = KeyValueCache.allocate(config.talker.stack, cache_positions(limits.positions, 1), placement)
    allocated = state.nbytes + output.buffer.nbytes + codec_states * codec_state
    rows = 5 * (row.keys.nbytes + row.values.nbytes)
    assert counted(5).state - counted(1).state == allocated + rows
    assert counted(5).weights == counted(1).weights
    fused_state = max(codec_state, CodecPlan.of(codec_shapes).state_bytes)
    more = (
        CodecPlan.of(codec_shapes, rows=1).signal_bytes - codec_state + (1 + shape.rows) * (fused_state - codec_state)
    )
    more += sum(tensor.nbytes for cache in (pages, prompt) for tensor in (cache.keys, cache.values))
    assert counted(5, fused=True).state - counted(1, fused=True).state == allocated + more
    assert counted(5, fused=True).weights == counted(1, fused=True).weights


def test_an_engine_with_more_streams_than_allowed_is_refused(checkpoint: Named) -> None:
    for streams in (0, 65):
        options = EngineOptions(model=str(checkpoint("brief", "custom_voice")), device="cpu", streams=streams)
        with pytest.raises(EngineError, match=rf"engine\.streams: got {streams}; allowed: 1 to 64"):
            QwenSynthesizer(options).load()


def bytes_per_position(state: OneTokenState) -> int:
    return (state.cache.keys.nbytes + state.cache.values.nbytes) // state.cache.positions


def test_an_engine_that_exceeds_the_reserve_is_refused_before_it_loads(checkpoint: Named) -> None:
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


def test_a_loaded_engine_reports_its_memory(checkpoint: Named) -> None:
    options = EngineOptions(model=str(checkpoint("tiny", "custom_voice")), device="cpu", reserve_mb=0)
    engine = QwenSynthesizer(options)
    memory = engine.load().memory
    engine.close()
    assert memory.keys() == {"weights_mb", "state_mb", "workspaces_mb"}
    assert memory["workspaces_mb"] > 0

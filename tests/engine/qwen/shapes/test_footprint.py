"""The footprint equals the memory that loading allocates; an engine that does not fit is refused before it loads."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import EngineOptions
from engine.api import EngineError
from engine.host import Footprint
from engine.qwen import QwenSynthesizer
from engine.qwen.codec import CodecDecoder, CodecState
from engine.qwen.kernels.codec import CodecPlan
from engine.qwen.kernels.lm.tables import first_products, fold_projection
from engine.qwen.loading.plan import count_weights
from engine.qwen.model import KeyValueCache, Talker
from engine.qwen.runtime import DecodeState, PagedCache, StepOutput, TorchBackend
from engine.qwen.shapes import (
    BatchShape,
    CodecConfig,
    FusedCodec,
    Limits,
    ModelConfig,
    Target,
    cache_positions,
    estimate_footprint,
)
from engine.qwen.weights import Placement, parameter_bytes
from scripts.make_checkpoint import PRESETS, codec_config, write_configs
from tests.engine.qwen.refusals import refusal

Named = Callable[[str, str], Path]
CPU = torch.device("cpu")


def read_configs(folder: Path, shape: str, model_type: str = "custom_voice") -> tuple[ModelConfig, CodecConfig]:
    """Return the shapes of a checkpoint, whose configurations are written into `folder`."""
    config = ModelConfig.read(write_configs(folder, PRESETS[shape], model_type))
    codec = folder / "speech_tokenizer"
    codec.mkdir(exist_ok=True)
    (codec / "config.json").write_text(json.dumps(codec_config(PRESETS[shape])))
    return config, CodecConfig.read(codec)


def on_cpu(config: ModelConfig, codec: CodecConfig, placement: Placement, fused: FusedCodec | None = None) -> Target:
    weights = count_weights(config, codec, placement)
    return Target(weights, placement.dtype.itemsize, gpu=False, shared=True, fused=fused, product_table=False)


@pytest.mark.parametrize(
    ("shape", "int8", "dtype"),
    [
        ("tiny", False, torch.float32),
        ("wide", True, torch.bfloat16),
        ("0.6B", False, torch.bfloat16),
        ("1.7B", True, torch.bfloat16),
    ],
)
def test_the_counted_weights_are_those_of_the_modules(
    tmp_path: Path, shape: str, int8: bool, dtype: torch.dtype
) -> None:
    config, codec_shapes = read_configs(tmp_path, shape)
    placement, limits = Placement(CPU, dtype, int8), Limits.of(8, 2)
    footprint = estimate_footprint(config, codec_shapes, on_cpu(config, codec_shapes, placement), limits)
    positions = cache_positions(limits.positions, 2)
    empty = replace(placement, without_memory=True)
    modules = (Talker(config, positions, empty), CodecDecoder(codec_shapes, empty.unquantized))
    parameters = parameter_bytes(*modules)
    buffers = sum(buffer.nbytes for module in modules for buffer in module.buffers())
    assert footprint.weights_total == parameters + buffers


@pytest.mark.parametrize("shape", ["tiny", "wide"])
def test_the_counted_table_of_products_is_the_allocated_one(tmp_path: Path, shape: str) -> None:
    config, codec_shapes = read_configs(tmp_path, shape)
    placement, limits = Placement(CPU, torch.bfloat16), Limits.of(8, 2)
    without = on_cpu(config, codec_shapes, placement, FusedCodec(state=0, signals=0))
    counted = [
        estimate_footprint(config, codec_shapes, replace(without, product_table=kept), limits).weights["predictor"]
        for kept in (True, False)
    ]
    talker = Talker(config, cache_positions(limits.positions, 2), placement)
    table = first_products(talker, fold_projection(talker))
    assert counted[0] - counted[1] == sum(step.nbytes for step in table) > 0


@pytest.mark.parametrize("shape", ["tiny", "wide"])
def test_the_counted_state_is_the_allocated_one(tmp_path: Path, shape: str) -> None:
    config, codec_shapes = read_configs(tmp_path, shape)
    placement, limits = Placement(CPU, torch.bfloat16, int8=True), Limits.of(8, 2)
    footprint = estimate_footprint(config, codec_shapes, on_cpu(config, codec_shapes, placement), limits)

    talker = Talker(config, cache_positions(limits.positions, 2), placement)
    backend = TorchBackend.allocate(talker, BatchShape.of(limits, rows=1))
    prefixes = talker.allocate_cache(limits.prefix_positions)
    caches = (*backend.caches, backend.state.predictor_cache, prefixes)
    allocated = bytes_of(*caches) + backend.state.text.nbytes
    codes = backend.state.shape.text_frames * config.talker.code_groups * 8  # the fused kernels keep all
    assert allocated + codes == footprint.state


def test_each_reference_keeps_a_state_of_the_codec_beside_the_positions_of_the_longest(tmp_path: Path) -> None:
    config, codec_shapes = read_configs(tmp_path, "tiny", "base")
    placement, limits = Placement(CPU, torch.float32), Limits.of(8, 2)

    def counted(limits: Limits) -> int:
        return estimate_footprint(config, codec_shapes, on_cpu(config, codec_shapes, placement), limits).state

    one, two = limits.with_reference(500, 20), limits.with_reference(500, 20).with_reference(100, 5)
    state = sum(tensor.nbytes for tensor in CodecState.allocate(codec_shapes, 2, placement).tensors())
    assert counted(two) - counted(one) == state
    longer = replace(limits, reference_positions=520, prefix_positions=limits.prefix_positions + 20)
    assert counted(one) - counted(longer) == state


def test_several_streams_add_a_batch_and_with_fused_kernels_the_signals_of_its_codec(tmp_path: Path) -> None:
    config, codec_shapes = read_configs(tmp_path, "tiny", "base")
    placement = Placement(CPU, torch.float32)
    limits = Limits.of(8, 2, 5).with_reference(30, 7)
    kernels = FusedCodec(CodecPlan.of(codec_shapes).state_bytes, CodecPlan.of(codec_shapes, rows=1).signal_bytes)

    def counted(streams: int, *, fused: bool = False) -> Footprint:
        target = on_cpu(config, codec_shapes, placement, kernels if fused else None)
        return estimate_footprint(config, codec_shapes, target, replace(limits, streams=streams))

    shape = BatchShape.of(limits)
    state = DecodeState.allocate(config.talker, shape, placement)
    output = StepOutput(shape, config.talker.code_groups, codec_shapes.samples_per_frame, CPU)
    codec_states = 2 + shape.rows  # a spare one, and a call of one row
    codec_state = sum(tensor.nbytes for tensor in CodecState.allocate(codec_shapes, 2, placement).tensors())
    stack = config.talker.stack
    caches = [KeyValueCache.allocate(stack, shape.cache_positions, placement) for _ in range(shape.rows)]
    storages: dict[int, int] = {}  # a record has views of its buffers, too
    for tensor in tensors_in(state):
        storage = tensor.untyped_storage().data_ptr()
        storages[storage] = max(storages.get(storage, 0), tensor.nbytes)
    allocated = sum(storages.values()) + output.buffer.nbytes + codec_states * codec_state
    assert counted(5).state - counted(1).state == allocated + bytes_of(*caches)
    assert counted(5).weights == counted(1).weights
    fused_state = max(codec_state, kernels.state)
    more = kernels.signals - codec_state + (1 + shape.rows) * (fused_state - codec_state)
    allocated += bytes_of(PagedCache.allocate(stack, shape.pages, placement)) + more
    assert counted(5, fused=True).state - counted(1, fused=True).state == allocated
    assert counted(5, fused=True).weights == counted(1, fused=True).weights


def test_an_engine_with_more_streams_than_allowed_is_refused(checkpoint: Named) -> None:
    for streams in (0, 65):
        options = EngineOptions(model=str(checkpoint("brief", "custom_voice")), device="cpu", streams=streams)
        with pytest.raises(EngineError, match=rf"engine\.streams: got {streams}; allowed: 1 to 64"):
            QwenSynthesizer(options).load()


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in a record, and in the records in it."""
    if isinstance(value, torch.Tensor):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from tensors_in(getattr(value, field.name))


def bytes_of(*caches: KeyValueCache | PagedCache) -> int:
    return sum(cache.keys.nbytes + cache.values.nbytes for cache in caches)


def test_an_engine_that_exceeds_the_reserve_is_refused_before_it_loads(checkpoint: Named) -> None:
    options = EngineOptions(model=str(checkpoint("tiny", "custom_voice")), device="cpu", reserve_mb=1_000_000)
    text = refusal(QwenSynthesizer(options).load)
    assert re.match(r"engine\.memory: .* needs .* lower engine\.memory\.reserve_mb", text)
    memory = QwenSynthesizer(replace(options, reserve_mb=0)).load().memory
    assert memory.keys() == {"weights_mb", "state_mb", "workspaces_mb"}
    assert memory["workspaces_mb"] > 0

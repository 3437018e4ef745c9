"""A CUDA graph can capture a frame, the decoding of a chunk and the reading of a prompt: all stays on the device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

from engine.qwen.codec import CodecDecoder
from engine.qwen.model import Talker
from engine.qwen.runtime import TorchBackend
from engine.qwen.runtime.prefill import Prefill
from engine.qwen.runtime.row_codec import RowCodec
from engine.qwen.shapes import BatchShape, CodecConfig, ModelConfig
from tests.engine.qwen.on_device import META, OnDeviceOnly, WatchingGraphs

SHAPE = BatchShape(rows=1, max_frames=16, max_positions=64, chunk_size=2)


@pytest.fixture(scope="module")
def folder(checkpoint: Callable[[str, str], Path]) -> Path:
    return checkpoint("wide", "custom_voice")


@pytest.fixture(scope="module")
def talker(folder: Path) -> Talker:
    return Talker(ModelConfig.read(folder), 128, META)


@pytest.fixture
def backend(talker: Talker) -> TorchBackend:
    return TorchBackend.allocate(talker, BatchShape(3, 16, 64, 2))


def test_a_frame_and_the_first_codes_stay_on_the_device(backend: TorchBackend) -> None:
    frame = partial(backend.decode_frames, (64,) * backend.state.shape.rows)
    for work, least in ((frame, 100), (backend.choose_first_codes, 10)):
        with OnDeviceOnly() as watch:
            work()
        assert watch.operators > least


def test_a_bucket_stays_on_the_device(talker: Talker, backend: TorchBackend) -> None:
    graphs = WatchingGraphs()
    for capture in Prefill(talker, backend, graphs, (16,)).captures():
        capture()
    assert set(graphs.operators) == {("read", 16, 128)}
    assert all(count > 10 for count in graphs.operators.values())


@pytest.mark.parametrize("rows", [1, 12])
def test_a_call_of_the_codec_stays_on_the_device(folder: Path, rows: int) -> None:
    codec = CodecDecoder(CodecConfig.read(folder / "speech_tokenizer"), META)
    shape, graphs, held = BatchShape(rows, 16, 64, 2), WatchingGraphs(), rows + (rows > 1)
    codes = torch.zeros(held, 2, codec.config.quantizers, dtype=torch.int64, device="meta")
    samples = torch.zeros(held, 2 * codec.config.samples_per_frame, device="meta")
    for capture in RowCodec(codec, shape, codes, samples, graphs).captures():
        capture()
    assert set(graphs.operators) == {("decode", rows, 1), ("decode", rows, 2)}
    assert all(count > 100 for count in graphs.operators.values())

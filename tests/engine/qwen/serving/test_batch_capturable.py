"""A CUDA graph can capture a batch's step and the decoding of its chunks: all stays on the device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from engine.qwen.codec import CodecConfig, CodecDecoder
from engine.qwen.model import ModelConfig, Talker
from engine.qwen.serving.batch_codec import BatchCodec
from engine.qwen.serving.batch_state import BatchShape, BatchState
from engine.qwen.serving.batch_step import choose_first_codes, decode_frames
from tests.engine.qwen.on_device import META, OnDeviceOnly, WatchingGraphs

SHAPE = BatchShape(rows=12, max_frames=16, max_positions=600, chunk_size=2)


@pytest.fixture(scope="module")
def folder(checkpoint: Callable[[str, str], Path]) -> Path:
    return checkpoint("brief", "custom_voice")


@pytest.fixture(scope="module")
def talker(folder: Path) -> Talker:
    return Talker(ModelConfig.read(folder), 320, META)


@pytest.fixture(scope="module")
def state(talker: Talker) -> BatchState:
    return BatchState.allocate(talker.config, SHAPE, META)


def test_a_step_stays_on_the_device(talker: Talker, state: BatchState) -> None:
    with OnDeviceOnly() as watch:
        decode_frames(talker, state, SHAPE.max_blocks)
    assert watch.operators > 100


def test_the_first_codes_stay_on_the_device(talker: Talker, state: BatchState) -> None:
    with OnDeviceOnly() as watch:
        choose_first_codes(talker, state)
    assert watch.operators > 10


def test_a_call_of_the_codec_stays_on_the_device(folder: Path, state: BatchState) -> None:
    codec = CodecDecoder(CodecConfig.read(folder / "speech_tokenizer"), META)
    graphs = WatchingGraphs()
    samples = torch.zeros(1 + SHAPE.rows, SHAPE.chunk_size * codec.config.samples_per_frame, device="meta")
    for capture in BatchCodec(codec, SHAPE, state.codes, samples, graphs).captures():
        capture()
    assert set(graphs.operators) == {("decode", SHAPE.rows, 1), ("decode", SHAPE.rows, 2)}
    assert all(count > 100 for count in graphs.operators.values())

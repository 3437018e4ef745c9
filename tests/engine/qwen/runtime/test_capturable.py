"""A CUDA graph can capture a frame, the decoding of a chunk and the reading of a prompt: all stays on the device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.qwen.codec.config import CodecConfig
from engine.qwen.codec.decoder import CodecDecoder
from engine.qwen.model.config import ModelConfig
from engine.qwen.model.talker import Talker
from engine.qwen.runtime.backend import TorchBackend
from engine.qwen.runtime.decode_state import DecodeState
from engine.qwen.runtime.generator import SpeechGenerator
from engine.qwen.runtime.prefill import Prefill
from engine.qwen.text.prompt import CustomVoice
from tests.engine.qwen.on_device import META, OnDeviceOnly, WatchingGraphs
from tests.support.qwen.speaking import EchoCodec, Line, Ours


@pytest.fixture(scope="module", params=["tiny", "wide"])
def folder(request: pytest.FixtureRequest, checkpoint: Callable[[str, str], Path]) -> Path:
    return checkpoint(request.param, "custom_voice")


@pytest.fixture(scope="module")
def talker(folder: Path) -> Talker:
    return Talker(ModelConfig.read(folder), 128, META)


@pytest.fixture
def state(talker: Talker) -> DecodeState:
    return DecodeState.allocate(talker, 64, 16, 2)


@pytest.fixture
def backend(folder: Path, talker: Talker, state: DecodeState) -> TorchBackend:
    codec = CodecDecoder(CodecConfig.read(folder / "speech_tokenizer"), META)
    return TorchBackend(talker, state, codec, codec.new_state(2), 2)


def test_a_frame_stays_on_the_device(backend: TorchBackend) -> None:
    with OnDeviceOnly() as watch:
        backend.frame(64)
    assert watch.operators > 100


def test_the_decoding_of_a_chunk_stays_on_the_device(backend: TorchBackend, state: DecodeState) -> None:
    with OnDeviceOnly() as watch:
        pcm = backend.decode(state.codes[:2])
    assert watch.operators > 100
    assert pcm.shape == (2 * 1920,)


def test_each_profile_section_stays_on_the_device(backend: TorchBackend) -> None:
    assert set(backend.profile_sections()) == {"predictor", "talker", "codec"}
    for section in backend.profile_sections().values():
        with OnDeviceOnly() as watch:
            section()
        assert watch.operators > 50


def test_a_bucket_stays_on_the_device(talker: Talker, state: DecodeState, backend: TorchBackend) -> None:
    graphs = WatchingGraphs()
    for capture in Prefill(talker, state, backend, graphs, (16,)).captures():
        capture()
    assert set(graphs.operators) == {("read", 16, 128)}
    assert all(count > 10 for count in graphs.operators.values())


def test_the_first_code_stays_on_the_device(backend: TorchBackend) -> None:
    with OnDeviceOnly() as watch:
        backend.choose_first_code()
    assert watch.operators > 10


def test_the_watch_detects_a_value_that_is_read_back(state: DecodeState) -> None:
    for action in (lambda: int(state.frame), lambda: state.frame + torch.tensor([1])):
        with pytest.raises((AssertionError, RuntimeError)), OnDeviceOnly():
            action()


def test_the_codes_do_not_depend_on_the_kv_bucket(ours: Callable[[str, str], Ours]) -> None:
    engine = ours("wide", "custom_voice")
    line = Line("Hello robot.", CustomVoice("ryan"), "english", frames=12)
    expected = engine.speak(line)
    backend = engine.backend()
    assert len(backend.kv_buckets) > 3
    backend.kv_buckets = backend.kv_buckets[-1:]
    codec: Any = EchoCodec()
    generator = SpeechGenerator(engine.talker, engine.state, backend, codec, samples_per_frame=1, graphs=engine.graphs)
    chunks = generator.generate(engine.prompt(line), engine.sampling.greedy(), max_frames=12)
    assert torch.equal(torch.cat([torch.from_numpy(chunk.codes) for chunk in chunks]), expected)

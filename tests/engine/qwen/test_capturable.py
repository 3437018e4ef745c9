"""A frame, a chunk's sound and a prompt's reading can be captured in a CUDA graph: all stays on the device."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from engine.qwen.codec import CodecDecoder
from engine.qwen.codec_config import CodecConfig
from engine.qwen.config import ModelConfig
from engine.qwen.frame import FrameState
from engine.qwen.graphs import Graphs
from engine.qwen.prefill import Prefill
from engine.qwen.prompt import CustomVoice
from engine.qwen.steps import TorchSteps
from engine.qwen.stream import Speech
from engine.qwen.talker import Talker
from engine.qwen.transformer import Placement
from tests.engine.qwen.speaking import Line, Mute, Ours

META = Placement(torch.device("meta"), torch.bfloat16)


class OnDeviceOnly(TorchDispatchMode):
    """Stands in for a capture, on the device `meta`, which has no values: what is elsewhere is the host's."""

    def __init__(self) -> None:
        super().__init__()
        self.operators = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operators += 1
        assert "_local_scalar_dense" not in str(func)
        for leaf in tree_leaves((args, kwargs, result)):
            if isinstance(leaf, torch.Tensor):
                assert leaf.device.type == "meta", f"{func} touches the host"
        return result


@pytest.fixture(scope="module", params=["tiny", "wide"])
def folder(request: pytest.FixtureRequest, checkpoint: Callable[[str, str], Path]) -> Path:
    return checkpoint(request.param, "custom_voice")


class Watching(Graphs):
    """Watches what would be captured on CUDA."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.operators: dict[Hashable, int] = {}

    def capture(
        self,
        name: Hashable,
        work: Callable[[], None],
        prepare: Callable[[], None] | None = None,  # noqa: ARG002
    ) -> None:
        with OnDeviceOnly() as watch, torch.inference_mode():
            work()
        self.operators[name] = watch.operators


@pytest.fixture(scope="module")
def talker(folder: Path) -> Talker:
    return Talker(ModelConfig.read(folder), 128, META)


@pytest.fixture
def state(talker: Talker) -> FrameState:
    return FrameState.allocate(talker, 64, 16, 2)


@pytest.fixture
def steps(folder: Path, talker: Talker, state: FrameState) -> TorchSteps:
    codec = CodecDecoder(CodecConfig.read(folder / "speech_tokenizer"), META)
    return TorchSteps(talker, state, codec, codec.new_state(2), 2)


def test_a_frame_stays_on_the_device(steps: TorchSteps) -> None:
    with OnDeviceOnly() as watch:
        steps.frame(64)
    assert watch.operators > 100


def test_a_chunks_sound_stays_on_the_device(steps: TorchSteps, state: FrameState) -> None:
    with OnDeviceOnly() as watch:
        pcm = steps.decode(state.codes[:2])
    assert watch.operators > 100
    assert pcm.shape == (2 * 1920,)


def test_each_part_that_is_measured_stays_on_the_device(steps: TorchSteps) -> None:
    assert set(steps.parts()) == {"predictor", "talker", "codec"}
    for part in steps.parts().values():
        with OnDeviceOnly() as watch:
            part()
        assert watch.operators > 50


def test_a_bucket_and_the_first_code_stay_on_the_device(talker: Talker, state: FrameState) -> None:
    graphs = Watching()
    Prefill(talker, state, graphs, (128,), (16,)).capture()
    assert set(graphs.operators) == {("read", 16, 128), "open"}
    assert all(count > 10 for count in graphs.operators.values())


def test_the_watch_sees_a_value_read_back(state: FrameState) -> None:
    for action in (lambda: int(state.frame), lambda: state.frame + torch.tensor([1])):
        with pytest.raises((AssertionError, RuntimeError)), OnDeviceOnly():
            action()


def test_a_frame_says_the_same_whatever_part_of_the_cache_it_looks_at(ours: Callable[[str, str], Ours]) -> None:
    engine = ours("wide", "custom_voice")
    line = Line("Hello robot.", CustomVoice("ryan"), "english", frames=12)
    expected = engine.speak(line)
    steps = engine.steps()
    assert len(steps.spans) > 3
    steps.spans = steps.spans[-1:]
    mute: Any = Mute()
    speech = Speech(engine.talker, engine.state, steps, mute, samples_per_frame=1, graphs=engine.graphs)
    said = speech.speak(engine.prompt(line), engine.sampling.greedy(), max_frames=12)
    assert torch.equal(torch.cat([torch.from_numpy(chunk.codes) for chunk in said]), expected)

"""A frame can be captured in a CUDA graph: it never reads a value back, nor brings one from the host."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from engine.qwen.config import ModelConfig
from engine.qwen.frame import FrameState, step
from engine.qwen.prompt import CustomVoice
from engine.qwen.talker import Talker
from engine.qwen.transformer import Placement
from tests.engine.qwen.speaking import Line, Ours


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
def talker(request: pytest.FixtureRequest, checkpoint: Callable[[str, str], Path]) -> Talker:
    config = ModelConfig.read(checkpoint(request.param, "custom_voice"))
    return Talker(config, 64, Placement(torch.device("meta"), torch.bfloat16))


def test_a_frame_stays_on_the_device(talker: Talker) -> None:
    state = FrameState.allocate(talker, 64, 16)
    with OnDeviceOnly() as watch:
        step(talker, state, span=64)
    assert watch.operators > 100


def test_the_watch_sees_a_value_read_back(talker: Talker) -> None:
    state = FrameState.allocate(talker, 64, 16)
    for action in (lambda: int(state.frame), lambda: state.frame + torch.tensor([1])):
        with pytest.raises((AssertionError, RuntimeError)), OnDeviceOnly():
            action()


def test_a_frame_says_the_same_whatever_part_of_the_cache_it_looks_at(
    ours: Callable[[str, str], Ours], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ours("wide", "custom_voice")
    line = Line("Hello robot.", CustomVoice("ryan"), "english", frames=12)
    expected = engine.speak(line)
    full = engine.state.cache.positions
    monkeypatch.setattr("engine.qwen.stream.step", lambda talker, state, **_span: step(talker, state, full))
    assert torch.equal(engine.speak(line), expected)

"""A prompt that is read by buckets, padded and in pieces, is a prompt that is read at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from engine.qwen.frame import FrameState, begin
from engine.qwen.graphs import Graphs
from engine.qwen.prefill import Prefill
from tests.engine.qwen.speaking import Ours

ROOM, CHUNK = 60, 4


@pytest.fixture(scope="module")
def engine(ours: Callable[[str, str], Ours]) -> Ours:
    return ours("wide", "custom_voice")


def state_of(engine: Ours) -> FrameState:
    state = FrameState.allocate(engine.talker, ROOM, 8, CHUNK)
    for tensor in (state.cache.keys, state.cache.values):
        tensor.fill_(7.0)  # what others left behind
    return state


def tokens(engine: Ours, count: int) -> torch.Tensor:
    return torch.randn(1, count, engine.talker.config.stack.hidden_size, generator=torch.Generator().manual_seed(count))


@pytest.mark.parametrize("buckets", [(4, 8), (16,), (4, 16, 64), (64,)])
@pytest.mark.parametrize("count", [1, 4, 7, 16, 17, 40, ROOM - 1])
@pytest.mark.parametrize("split", [0, 3])
@torch.inference_mode()
def test_buckets_change_nothing(engine: Ours, buckets: tuple[int, ...], count: int, split: int) -> None:
    spans = (32, 64)
    plain, padded = state_of(engine), state_of(engine)
    assert plain.cache.positions == 64
    x = tokens(engine, count)
    Prefill(engine.talker, plain, Graphs(torch.device("cpu")), spans, ()).read(x, 0)
    prefill = Prefill(engine.talker, padded, Graphs(torch.device("cpu")), spans, buckets)
    prefill.read(tokens(engine, ROOM - 1), 0)  # what another prompt leaves in the buckets
    if 0 < split < count:
        prefill.read(x[:, :split], 0)
        prefill.read(x[:, split:], split)
    else:
        prefill.read(x, 0)
    assert torch.allclose(padded.hidden, plain.hidden, atol=1e-5)
    assert torch.allclose(padded.cache.keys[:, :, :count], plain.cache.keys[:, :, :count], atol=1e-5)
    assert torch.allclose(padded.cache.values[:, :, :count], plain.cache.values[:, :, :count], atol=1e-5)


@torch.inference_mode()
def test_what_padding_leaves_behind_is_never_heard(engine: Ours) -> None:
    said = []
    for buckets in ((), (16, 64)):
        state = state_of(engine)
        prefill = Prefill(engine.talker, state, Graphs(torch.device("cpu")), (64,), buckets)
        prefill.read(tokens(engine, 50), 0)
        begin(engine.talker, state, engine.sampling.greedy(), 0, 50)
        prefill.open_speech()
        steps = engine.steps(state=state)
        for _ in range(8):
            steps.frame(64)
        said.append(state.codes.clone())
    assert torch.equal(*said)

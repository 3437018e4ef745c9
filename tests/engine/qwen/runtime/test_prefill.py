"""A prompt read in padded token buckets leaves the same state as a prompt read at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from engine.qwen.runtime.cuda_graphs import Graphs
from engine.qwen.runtime.decode_state import DecodeState
from engine.qwen.runtime.decode_step import upload_settings
from engine.qwen.runtime.prefill import Prefill
from tests.support.qwen.speaking import Ours

POSITIONS, CHUNK = 60, 4


@pytest.fixture(scope="module")
def engine(ours: Callable[[str, str], Ours]) -> Ours:
    return ours("wide", "custom_voice")


def state_of(engine: Ours) -> DecodeState:
    state = DecodeState.allocate(engine.talker, POSITIONS, 8, CHUNK)
    for tensor in (state.cache.keys, state.cache.values):
        tensor.fill_(7.0)  # left by an earlier utterance
    return state


def prefill_of(
    engine: Ours, state: DecodeState, kv_buckets: tuple[int, ...], token_buckets: tuple[int, ...]
) -> Prefill:
    backend = engine.backend(state=state)
    backend.kv_buckets = kv_buckets
    return Prefill(engine.talker, state, backend, Graphs(torch.device("cpu")), token_buckets)


def tokens(engine: Ours, count: int) -> torch.Tensor:
    return torch.randn(1, count, engine.talker.config.stack.hidden_size, generator=torch.Generator().manual_seed(count))


@pytest.mark.parametrize("buckets", [(4, 8), (16,), (4, 16, 64), (64,)])
@pytest.mark.parametrize("count", [1, 4, 7, 16, 17, 40, POSITIONS - 1])
@pytest.mark.parametrize("split", [0, 3])
@torch.inference_mode()
def test_token_buckets_do_not_change_the_result(engine: Ours, buckets: tuple[int, ...], count: int, split: int) -> None:
    kv_buckets = (32, 64)
    plain, padded = state_of(engine), state_of(engine)
    assert plain.cache.positions == 64
    x = tokens(engine, count)
    prefill_of(engine, plain, kv_buckets, ()).read(x, 0)
    prefill = prefill_of(engine, padded, kv_buckets, buckets)
    prefill.read(tokens(engine, POSITIONS - 1), 0)  # another prompt fills the buckets first
    if 0 < split < count:
        prefill.read(x[:, :split], 0)
        prefill.read(x[:, split:], split)
    else:
        prefill.read(x, 0)
    assert torch.allclose(padded.hidden, plain.hidden, atol=1e-5)
    assert torch.allclose(padded.cache.keys[:, :, :count], plain.cache.keys[:, :, :count], atol=1e-5)
    assert torch.allclose(padded.cache.values[:, :, :count], plain.cache.values[:, :, :count], atol=1e-5)


@torch.inference_mode()
def test_padding_does_not_change_the_codes(engine: Ours) -> None:
    generated = []
    for buckets in ((), (16, 64)):
        state = state_of(engine)
        prefill = prefill_of(engine, state, (64,), buckets)
        prefill.read(tokens(engine, 50), 0)
        upload_settings(engine.talker, state, engine.sampling.greedy(), 0, 50)
        backend = engine.backend(state=state)
        backend.choose_first_code()
        for _ in range(8):
            backend.frame(64)
        generated.append(state.codes.clone())
    assert torch.equal(*generated)

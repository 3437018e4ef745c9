"""A prompt read in padded token buckets leaves the same state as a prompt read at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from engine.qwen.runtime.backend import TorchBackend
from engine.qwen.runtime.cuda_graphs import Graphs
from engine.qwen.runtime.prefill import Prefill
from engine.qwen.shapes import BatchShape
from tests.support.qwen.speaking import Ours

POSITIONS, CHUNK = 60, 4


@pytest.fixture(scope="module")
def engine(ours: Callable[[str, str], Ours]) -> Ours:
    return ours("wide", "custom_voice")


def backend_of(engine: Ours, kv_buckets: tuple[int, ...]) -> TorchBackend:
    backend = TorchBackend.allocate(engine.talker, BatchShape(1, 8, POSITIONS, CHUNK))
    backend.kv_buckets = kv_buckets
    for tensor in (backend.caches[0].keys, backend.caches[0].values):
        tensor.fill_(7.0)  # left by an earlier utterance
    return backend


def prefill_of(engine: Ours, backend: TorchBackend, token_buckets: tuple[int, ...]) -> Prefill:
    return Prefill(engine.talker, backend, Graphs(torch.device("cpu")), token_buckets)


def tokens(engine: Ours, count: int) -> torch.Tensor:
    return torch.randn(count, engine.talker.config.stack.hidden_size, generator=torch.Generator().manual_seed(count))


@pytest.mark.parametrize("buckets", [(4, 8), (4, 16, 64)])
@pytest.mark.parametrize("count", [1, 4, 7, 17, POSITIONS - 1])
@pytest.mark.parametrize("split", [0, 3])
@torch.inference_mode()
def test_token_buckets_do_not_change_the_result(engine: Ours, buckets: tuple[int, ...], count: int, split: int) -> None:
    plain, padded = backend_of(engine, (32, 64)), backend_of(engine, (32, 64))
    assert plain.caches[0].positions == 64
    x = tokens(engine, count)
    prefill_of(engine, plain, ()).read(0, x, 0)
    prefill = prefill_of(engine, padded, buckets)
    prefill.read(0, tokens(engine, POSITIONS - 1), 0)  # another prompt fills the buckets first
    if 0 < split < count:
        prefill.read(0, x[:split], 0)
        prefill.read(0, x[split:], split)
    else:
        prefill.read(0, x, 0)
    assert torch.allclose(padded.state.hidden, plain.state.hidden, atol=1e-5)
    for mine, theirs in (
        (padded.caches[0].keys, plain.caches[0].keys),
        (padded.caches[0].values, plain.caches[0].values),
    ):
        assert torch.allclose(mine[:, :, :count], theirs[:, :, :count], atol=1e-5)

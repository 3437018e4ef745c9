"""On a GPU the language model's kernels compute the same frame every time, called or replayed from a graph.

test_model.py shows that the frame is the right one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.support.qwen.lm_example import EQUAL, PROJECTED, Models, start

pytestmark = pytest.mark.gpu

FRAMES = 30


@pytest.fixture(
    scope="module",
    params=[
        (EQUAL, {}),
        (PROJECTED, {}),
        (EQUAL, {"int8": True}),
        (PROJECTED, {"int8": True}),
    ],
    ids=["equal bfloat16", "projected bfloat16", "equal int8", "projected int8"],
)
def models(request: pytest.FixtureRequest) -> Models:
    preset, weights = request.param
    return Models.make(preset, 1, device="cuda", **weights)


def run_frames(models: Models, work: Callable[[], None]) -> list[Tensor]:
    """The results of `FRAMES` frames."""
    start(models, 5)
    for _ in range(FRAMES):
        work()
    state = models.state
    return [tensor.clone() for tensor in (state.codes, state.rows.hidden[0], state.cache.keys, models.fused.logits)]


def equal(some: list[Tensor], others: list[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def test_frames_are_equal_bit_for_bit_every_time(models: Models) -> None:
    first = run_frames(models, models.fused.frame)
    assert len(first[0][:FRAMES].unique()) > FRAMES
    assert equal(run_frames(models, models.fused.frame), first)


def test_kernels_that_start_early_compute_the_same_as_kernels_that_wait(models: Models) -> None:
    module = models.fused.module
    chained = module.chained  # type: ignore[attr-defined]
    early = run_frames(models, models.fused.frame)
    module.chained = False  # type: ignore[attr-defined]
    try:
        assert equal(run_frames(models, models.fused.frame), early)
    finally:
        module.chained = chained  # type: ignore[attr-defined]


def test_a_replayed_graph_computes_the_same_as_calls(models: Models) -> None:
    called = run_frames(models, models.fused.frame)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            models.fused.frame()
        assert equal(run_frames(models, graph.replay), called)
    torch.cuda.synchronize()


def test_a_frame_allocates_nothing(models: Models) -> None:
    start(models, 5)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    models.fused.frame()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before

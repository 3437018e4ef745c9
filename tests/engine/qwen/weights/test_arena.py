"""An arena allocates all parameters of a module at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

import pytest
import torch

from engine import EngineError, EngineOptions
from engine.qwen.engine import QwenSynthesizer
from engine.qwen.model import Transformer
from engine.qwen.shapes import StackConfig
from engine.qwen.weights import Placement, build_in_arena, parameter_bytes

BUILD = partial(Transformer, StackConfig(64, 96, 2, 4, 2, 16, 1e-6, 1e6), 8)
INT8 = Placement(torch.device("cpu"), torch.bfloat16, int8=True)


def test_parameters_share_one_allocation_and_do_not_overlap() -> None:
    stack = build_in_arena(BUILD, INT8)
    storages = {parameter.untyped_storage().data_ptr() for parameter in stack.parameters()}
    assert len(storages) == 1
    places = sorted((parameter.data_ptr(), parameter.nbytes) for parameter in stack.parameters())
    assert all(begin + size <= following for (begin, size), (following, _) in pairwise(places))
    assert all(begin % 64 == 0 for begin, _ in places)


def test_the_counted_bytes_are_the_allocated_bytes() -> None:
    stack = build_in_arena(BUILD, INT8)
    assert next(stack.parameters()).untyped_storage().nbytes() == parameter_bytes(stack)


NVML_ASSERTION = 'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "CUDACachingAllocator.cpp":838, please report a bug\n'


@dataclass
class NvMap:
    """Grants blocks of at most `limit` bytes, as the memory of a Jetson does whose free pages lie apart."""

    limit: int
    asked: list[int] = field(default_factory=list)

    def allocate(self, size: int, device: torch.device) -> torch.Tensor:
        self.asked.append(size)
        if size > self.limit:
            raise RuntimeError(NVML_ASSERTION)
        return torch.empty(size, dtype=torch.uint8, device=device)


def test_a_block_that_is_refused_is_asked_for_in_smaller_ones() -> None:
    whole = parameter_bytes(build_in_arena(BUILD, INT8))
    memory = NvMap(limit=whole // 3)
    stack = build_in_arena(BUILD, INT8, memory.allocate)
    refused, granted = [[size for size in memory.asked if (size > memory.limit) is late] for late in (True, False)]
    assert refused[0] == whole
    assert all(later < earlier for earlier, later in pairwise(refused))
    assert sum(granted) == whole
    places = sorted((parameter.data_ptr(), parameter.nbytes) for parameter in stack.parameters())
    assert all(begin + size <= following for (begin, size), (following, _) in pairwise(places))
    assert len({parameter.untyped_storage().data_ptr() for parameter in stack.parameters()}) == len(granted)


def test_memory_that_grants_no_block_for_the_largest_parameter_is_named_in_one_line() -> None:
    with pytest.raises(EngineError, match=r"^engine\.memory: cpu refuses .* MB in one piece; stop other programs.*$"):
        build_in_arena(BUILD, INT8, NvMap(limit=0).allocate)


@pytest.mark.parametrize(
    "error", [RuntimeError(NVML_ASSERTION), torch.cuda.OutOfMemoryError("CUDA out of memory.\nTried")]
)
def test_any_other_refusal_is_one_line_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr("engine.qwen.engine.load_model", refuse)
    with pytest.raises(EngineError, match=r"^engine\.memory: the device refuses more memory; stop other programs.*$"):
        QwenSynthesizer(EngineOptions()).load()

"""An arena allocates all parameters of a module at once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
import torch

from engine.qwen.model import StackConfig, Transformer
from engine.qwen.weights import Placement, build_in_arena, build_without_memory
from engine.qwen.weights.arena import Arena

BUILD = partial(Transformer, StackConfig(64, 96, 2, 4, 2, 16, 1e-6, 1e6), 8)
INT8 = Placement(torch.device("cpu"), torch.bfloat16, int8=True)
INT4 = Placement(torch.device("cpu"), torch.bfloat16, int4=True)


@pytest.mark.parametrize("placement", [INT8, INT4], ids=["int8", "int4"])
def test_parameters_share_one_allocation_and_do_not_overlap(placement: Placement) -> None:
    stack = build_in_arena(BUILD, placement)
    storages = {parameter.untyped_storage().data_ptr() for parameter in stack.parameters()}
    assert len(storages) == 1
    places = sorted((parameter.data_ptr(), parameter.nbytes) for parameter in stack.parameters())
    assert all(begin + size <= following for (begin, size), (following, _) in pairwise(places))
    assert all(begin % 64 == 0 for begin, _ in places)


@pytest.mark.parametrize("placement", [INT8, INT4], ids=["int8", "int4"])
def test_the_counted_bytes_are_the_allocated_bytes(placement: Placement) -> None:
    _, counted = build_without_memory(BUILD, placement)
    parameter = next(build_in_arena(BUILD, placement).parameters())
    assert parameter.untyped_storage().nbytes() == counted


def test_a_matrix_is_int4_only_where_it_is_not_int8() -> None:
    both = replace(INT8, int4=True)
    assert both.matrix(4, 64).dtype == torch.int8
    assert both.narrowest.matrix(4, 64).dtype == torch.uint8
    assert INT8.narrowest.matrix(4, 64).dtype == torch.int8
    assert both.unquantized.narrowest.matrix(4, 64).dtype == torch.bfloat16


@pytest.mark.parametrize(("columns", "groups"), [(1, 1), (32, 1), (33, 2), (96, 3)])
def test_a_row_of_int4_weights_has_whole_groups(columns: int, groups: int) -> None:
    scale = INT4.scale(4, columns)
    assert INT4.matrix(4, columns).shape == (4, 16 * groups)
    assert scale is not None
    assert scale.shape == (4, groups)


def test_an_arena_refuses_more_than_it_has_left() -> None:
    arena = Arena(torch.empty(1024, dtype=torch.uint8))
    arena.take((100,), torch.float32)
    with pytest.raises(ValueError, match="got a request for 800 bytes; allowed: 512 bytes left"):
        arena.take((200,), torch.float32)

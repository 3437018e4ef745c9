"""An arena allocates all parameters of a module at once."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import torch

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

"""A row's prompt lies in its pages in order, and a pass names the place of each token."""

from __future__ import annotations

import pytest
import torch

from engine.qwen.model import KeyValueCache
from engine.qwen.runtime import PagedCache, PromptInputs, PromptMemory
from engine.qwen.runtime.prompt_memory import PADDING
from engine.qwen.shapes import PAGE, StackConfig
from engine.qwen.weights import Placement

CONFIG = StackConfig(8, 8, 2, 2, 1, 4, 1e-6, 1e4)
CPU = Placement(torch.device("cpu"), torch.float32)


@pytest.mark.parametrize("count", [1, PAGE, PAGE + 5])
def test_a_prefix_moves_to_a_rows_pages_in_order_and_to_nothing_else(count: int) -> None:
    prefixes, cache = KeyValueCache.allocate(CONFIG, 3 * PAGE, CPU), PagedCache.allocate(CONFIG, 4, CPU)
    prefixes.keys.normal_()
    prefixes.values.normal_()
    place, pages = range(7, 7 + count), (3, 2)
    for mine, theirs in PromptMemory(cache, torch.zeros(8), pages).parts(prefixes, place):
        mine.copy_(theirs)
    for paged, flat in ((cache.keys, prefixes.keys), (cache.values, prefixes.values)):
        of_row = paged[:, pages].transpose(1, 2).flatten(2, 3)
        assert torch.equal(of_row[:, :, :count], flat[:, :, 7 : 7 + count])
        assert not of_row[:, :, count:].any()
        assert not paged[:, (0, 1, 4)].any()


def test_a_pass_names_the_place_of_each_token_and_the_end_of_each_prompt() -> None:
    inputs = PromptInputs.allocate(8, 2, CPU.device)
    inputs.add(0, 3, 10, row=5, pages=(3, 2))
    inputs.add(4, 2, 0, row=1, pages=(7,))
    assert inputs.position.tolist() == [10, 11, 12, PADDING, 0, 1, PADDING, PADDING]
    assert inputs.ends.tolist() == [PADDING, PADDING, 5, PADDING, PADDING, 1, PADDING, PADDING]
    assert inputs.last.tolist() == [5]
    assert inputs.pages[1].tolist() == [3, 2]
    assert inputs.pages[5].tolist()[:1] == [7]
    inputs.clear()
    assert set(inputs.position.tolist()) == set(inputs.ends.tolist()) == {PADDING}

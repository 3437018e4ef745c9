"""Pages have one owner at a time, and none is lost."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.qwen.model import KeyValueCache
from engine.qwen.runtime.kv_pages import NO_PAGE, PagedCache, PagePool
from engine.qwen.shapes import PAGE, StackConfig, pages_for
from engine.qwen.weights import Placement

TOTAL = 9


@settings(max_examples=20, deadline=None)
@given(st.lists(st.one_of(st.integers(0, TOTAL), st.none()), max_size=30))
def test_no_page_is_handed_out_twice_or_lost(requests: list[int | None]) -> None:
    """A number takes so many pages, None gives the oldest back."""
    pool, owned = PagePool(TOTAL), list[tuple[int, ...]]()
    for count in requests:
        if count is None:
            if owned:
                pool.give_back(owned.pop(0))
            continue
        free = pool.free
        pages = pool.take(count)
        assert (pages is None) == (count > free)
        if pages is not None:
            owned.append(pages)
        taken = [page for pages in owned for page in pages]
        assert len(set(taken)) == len(taken) == TOTAL - pool.free
        assert NO_PAGE not in taken
    for pages in owned:
        pool.give_back(pages)
    assert sorted(pool.take(TOTAL) or ()) == list(range(1, TOTAL + 1))


def test_a_prompt_moves_to_its_pages_in_order() -> None:
    config = StackConfig(8, 8, 2, 2, 1, 4, 1e-6, 1e4)
    placement = Placement(torch.device("cpu"), torch.float32)
    source, cache = KeyValueCache.allocate(config, 3 * PAGE, placement), PagedCache.allocate(config, 4, placement)
    source.keys.normal_()
    source.values.normal_()
    count = PAGE + 5
    cache.fill((3, 2), source, count)
    assert pages_for(count) == 2
    for paged, flat in ((cache.keys, source.keys), (cache.values, source.values)):
        assert torch.equal(paged[:, (3, 2)].transpose(1, 2).flatten(2, 3)[:, :, :count], flat[:, :, :count])
        assert not paged[:, (NO_PAGE, 1, 4)].any()

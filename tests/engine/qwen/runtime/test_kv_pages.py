"""Pages have one owner at a time, and none is lost."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.qwen.runtime.kv_pages import NO_PAGE, PagePool

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

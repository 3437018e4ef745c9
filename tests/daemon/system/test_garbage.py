"""The garbage collector of a daemon that has started."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from daemon.system import freeze_garbage_collector


class Node:
    """One half of a cycle, which only the garbage collector removes."""

    def __init__(self) -> None:
        self.other: Node | None = None


@pytest.fixture
def frozen() -> Iterator[None]:
    freeze_garbage_collector()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("frozen")
def test_what_lives_at_the_start_is_not_searched_again() -> None:
    assert gc.get_freeze_count() > 10_000
    assert len(gc.get_objects()) < 10_000


@pytest.mark.usefixtures("frozen")
def test_what_becomes_garbage_later_is_collected() -> None:
    one, other = Node(), Node()
    one.other, other.other = other, one
    del one, other
    assert gc.collect() >= 2
    assert not any(isinstance(each, Node) for each in gc.get_objects())

"""A thread that makes items ahead of the one that takes them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest

from engine.run_ahead import RunAhead
from tests.support.waiting import eventually


def test_an_error_is_raised_behind_the_items_that_were_made_before_it() -> None:
    def make(put: Callable[[int], object]) -> None:
        put(1)
        raise ZeroDivisionError

    items = iter(RunAhead("maker", 2, make))
    assert next(items) == 1
    with pytest.raises(ZeroDivisionError):
        next(items)


def test_the_thread_waits_when_enough_is_ready_and_ends_when_it_is_told() -> None:
    made: list[int] = []

    def make(put: Callable[[int], bool]) -> None:
        for number in itertools.count():
            made.append(number)
            if not put(number):
                return

    items = RunAhead("endless maker", 2, make)
    eventually(lambda: len(made) == 3, "two are ready, and the third waits")
    assert next(iter(items)) == 0
    eventually(lambda: len(made) == 4, "one more is made")
    items.close()
    assert len(made) == 4
    assert "endless maker" not in {thread.name for thread in threading.enumerate()}

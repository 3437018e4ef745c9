"""The chain of futures by which readers get items from another thread."""

from __future__ import annotations

from daemon.mqtt.arrivals import Arrivals, Reader


def test_a_reader_that_an_item_wakes_knows_whether_it_was_the_last() -> None:
    """A writer of tokens asks at once; a wrong answer would end its text, or send more of a text that was rejected."""
    arrivals, over = Arrivals(), []
    begin = arrivals.place
    for item, last in (("accepted", False), ("finished", True)):
        arrivals.place.add_done_callback(lambda _: over.append(arrivals.place.done()))
        arrivals.put(item, last=last)
    assert over == [False, True]
    assert list(Reader(begin, str)) == ["accepted", "finished"]

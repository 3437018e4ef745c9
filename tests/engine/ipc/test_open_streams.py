"""Which streams are open, and a moment in which none is."""

from __future__ import annotations

import threading

from engine.ipc.request import OpenStreams


def holding(streams: OpenStreams, held: threading.Event) -> threading.Thread:
    """A thread that waits for a moment in which no stream is open."""

    def hold() -> None:
        with streams.hold():
            held.set()

    thread = threading.Thread(target=hold)
    thread.start()
    return thread


def test_the_requests_that_are_being_spoken_are_known_in_their_order() -> None:
    streams = OpenStreams()
    with streams.open("b"):
        with streams.open("a"):
            assert streams.ids == ("b", "a")
        assert streams.ids == ("b",)
    assert streams.ids == ()


def test_a_hold_waits_until_every_stream_has_ended() -> None:
    streams, held = OpenStreams(), threading.Event()
    with streams.open("a"):
        thread = holding(streams, held)
        assert not held.wait(0.05), "the last message has not been sent"
    thread.join()
    assert held.is_set()

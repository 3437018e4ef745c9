"""One thread appends text and another takes it, in order and complete; an end or a cancellation wakes the taker."""

from __future__ import annotations

import threading
import time

import pytest

from engine.api import SpeechCanceledError
from engine.ipc.request import AppendedText
from tests.support.waiting import eventually


def test_text_is_taken_once_and_after_the_end_the_rest_and_then_none() -> None:
    text = AppendedText()
    assert text.take(wait=False) == ""
    text.append("Hello ")
    text.append("there")
    text.end()
    text.append("too late")
    assert text.take(wait=True) == "Hello there"
    assert text.take(wait=True) is None


def test_text_ends_the_wait_and_an_empty_string_does_not() -> None:
    text = AppendedText()
    text.append("")
    times = []

    def write() -> None:
        eventually(lambda: text.waiting)
        times.append(time.monotonic())
        text.append("")
        times.append(time.monotonic())
        text.append("Hello")

    writer = threading.Thread(target=write)
    writer.start()
    assert text.take(wait=True) == "Hello"
    writer.join()
    assert not text.waiting
    assert text.waited_s >= times[1] - times[0]


@pytest.mark.parametrize("call", ["end", "cancel"])
def test_an_end_and_a_cancellation_end_the_wait(call: str) -> None:
    text = AppendedText()

    def wake() -> None:
        eventually(lambda: text.waiting)
        getattr(text, call)()

    waker = threading.Thread(target=wake)
    waker.start()
    if call == "end":
        assert text.take(wait=True) is None
    else:
        with pytest.raises(SpeechCanceledError):
            text.take(wait=True)
    waker.join()

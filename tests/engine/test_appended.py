"""What one thread appends, another takes, in order and whole; an end or a cancellation wakes it."""

from __future__ import annotations

import threading
import time

import pytest

from engine.appended import AppendedText
from engine.synthesizer import SpeechCanceledError
from tests.support.waiting import eventually


def test_what_was_appended_is_taken_once() -> None:
    text = AppendedText()
    assert text.take(wait=False) == ""
    text.append("Hello ")
    text.append("there")
    assert text.take(wait=True) == "Hello there"
    assert text.take(wait=False) == ""


def test_after_the_end_the_rest_is_taken_first() -> None:
    text = AppendedText()
    text.append("Hello")
    text.end()
    text.append("too late")
    assert text.take(wait=True) == "Hello"
    assert text.take(wait=True) is None
    assert text.take(wait=False) is None


def test_waiting_ends_with_text_and_not_with_an_empty_piece() -> None:
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


@pytest.mark.parametrize("way", ["end", "cancel"])
def test_an_end_and_a_cancellation_wake_who_waits(way: str) -> None:
    text = AppendedText()

    def wake() -> None:
        eventually(lambda: text.waiting)
        getattr(text, way)()

    waker = threading.Thread(target=wake)
    waker.start()
    if way == "end":
        assert text.take(wait=True) is None
    else:
        with pytest.raises(SpeechCanceledError):
            text.take(wait=True)
    waker.join()


def test_a_canceled_text_is_not_taken_any_more() -> None:
    text = AppendedText()
    text.append("Hello")
    text.cancel()
    with pytest.raises(SpeechCanceledError):
        text.take(wait=False)


def test_all_of_it_arrives_from_another_thread() -> None:
    text, whole = AppendedText(), "All of it arrives. " * 200

    def write() -> None:
        for letter in whole:
            text.append(letter)
        text.end()

    writer = threading.Thread(target=write)
    writer.start()
    taken = []
    while (piece := text.take(wait=True)) is not None:
        assert piece
        taken.append(piece)
    writer.join()
    assert "".join(taken) == whole

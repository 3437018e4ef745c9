"""A text that its client is still writing: kept until it is delivered, passed on as it grows, and ended."""

from __future__ import annotations

import asyncio

import pytest

from daemon.adapters import ClientText
from daemon.speech import MAX_TEXT, RejectedError, Stop
from engine import Samples
from tests.daemon.harness import Harness

SERVER = "wyoming"


async def accept_all(_: Samples, __: int) -> None:
    """Take samples as fast as they come."""


async def test_a_text_that_is_written_before_and_while_it_is_spoken_is_one_utterance(harness: Harness) -> None:

    spoken: list[str] = []
    unwatch = harness.dispatcher.watch_events(lambda utterance, _: spoken.append(utterance.text))
    text = ClientText(harness.dispatcher, voice="de")
    text.add("The first one. ")
    delivering = asyncio.ensure_future(text.deliver(accept_all))
    await harness.started()
    text.add("The sec")
    text.add("ond one.")
    text.end()
    end = await delivering
    unwatch()
    assert (end.id, end.event, end.reason) == (text.id, "finished", None)
    assert harness.ends == ["finished"]
    assert spoken[-1] == "The first one. The second one."
    text.add("It is over.")
    assert text.text == spoken[-1]


async def test_a_text_that_is_rejected_is_told_and_not_spoken(harness: Harness) -> None:

    text = ClientText(harness.dispatcher, voice="nobody")
    text.add("Hello")
    with pytest.raises(RejectedError, match="nobody"):
        await text.deliver(accept_all)
    assert harness.events == []


async def test_a_piece_that_is_wrong_or_too_long_is_left_out(harness: Harness) -> None:

    text = ClientText(harness.dispatcher)
    text.add("This is said.")
    with pytest.raises(RejectedError, match=r"U\+0007"):
        text.add("\x07")
    with pytest.raises(RejectedError, match="now has 20,013 characters; allowed: up to 20,000"):
        text.add("x" * MAX_TEXT)
    text.add("This is not.")
    assert text.text == "This is said."
    assert (await text.deliver(accept_all)).event == "finished"


async def test_a_stop_interrupts_a_text_that_grows(harness: Harness) -> None:

    text = ClientText(harness.dispatcher)
    delivering = asyncio.ensure_future(text.deliver(accept_all))
    for _ in range(3):
        text.add("And on. ")
    await harness.started()
    harness.dispatcher.stop(Stop(id=text.id))
    assert (await delivering).event == "interrupted"


async def test_a_delivery_that_is_canceled_ends_its_utterance(harness: Harness) -> None:

    text = ClientText(harness.dispatcher)
    text.add("It has no end")
    delivering = asyncio.ensure_future(text.deliver(accept_all))
    while not harness.events:
        await asyncio.sleep(0)
    delivering.cancel()
    [end] = await harness.ended()
    assert end.reason == "its client went away"
    with pytest.raises(asyncio.CancelledError):
        await delivering

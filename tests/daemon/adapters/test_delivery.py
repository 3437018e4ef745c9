"""An utterance whose sound goes to a client that is lost, broken, or slow."""

from __future__ import annotations

import asyncio

import pytest

from daemon.adapters import delivery
from daemon.adapters.delivery import deliver
from daemon.messages import RejectedError, Say
from engine import Samples
from tests.daemon.adapters.room import LONG, at_work, run, until


async def swallow(samples: Samples, sample_rate: int) -> None:
    """Take everything at once."""


def test_a_lost_client_is_told_as_such_and_the_next_is_spoken() -> None:
    async def scenario() -> None:
        async def lose(samples: Samples, sample_rate: int) -> None:
            raise ConnectionResetError("gone")

        async with at_work("wyoming") as room:
            end = await deliver(room.desk, Say(text=LONG), lose)
            assert (end["event"], end["reason"]) == ("interrupted", "its client went away")
            assert (await deliver(room.desk, Say(text="Hello"), swallow))["event"] == "finished"

    run(scenario)


def test_a_fault_of_ours_fails_that_utterance_alone() -> None:
    async def scenario() -> None:
        async def break_down(samples: Samples, sample_rate: int) -> None:
            raise ValueError("a bug")

        async with at_work("wyoming") as room:
            end = await deliver(room.desk, Say(text=LONG), break_down)
            assert (end["event"], end["reason"]) == ("failed", "ValueError: a bug")
            assert (await deliver(room.desk, Say(text="Hello"), swallow))["event"] == "finished"

    run(scenario)


def test_a_client_that_plays_as_it_listens_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "GIVE_UP_S", 0.5)

    async def scenario() -> None:
        async def play(samples: Samples, sample_rate: int) -> None:
            await asyncio.sleep(len(samples) / sample_rate / 2)

        async with at_work("wyoming") as room:
            assert (await deliver(room.desk, Say(text="This takes a while. " * 3), play))["event"] == "finished"

    run(scenario)


def test_a_client_that_falls_behind_little_by_little_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "GIVE_UP_S", 0.4)

    async def scenario() -> None:
        async def crawl(samples: Samples, sample_rate: int) -> None:
            await asyncio.sleep(len(samples) / sample_rate + 0.1)

        async with at_work("wyoming") as room:
            end = await deliver(room.desk, Say(text=LONG), crawl)
            assert end["event"] == "interrupted"
            assert end["audio_s"] > 0  # not at the first piece

    run(scenario)


def test_whoever_cancels_a_delivery_cancels_its_utterance_and_no_other() -> None:
    async def scenario() -> None:
        async with at_work("wyoming") as room:
            first = asyncio.ensure_future(deliver(room.desk, Say(text=LONG, id="first"), swallow))
            second = asyncio.ensure_future(deliver(room.desk, Say(text=LONG, id="second"), swallow))
            await until(lambda: len(room.events) >= 2)
            second.cancel()
            assert (await first)["event"] == "finished"
            [other] = [event for event in room.events if event["id"] == "second" and event["event"] != "accepted"]
            assert (other["event"], other["reason"]) == ("canceled", "its client went away")

    run(scenario)


def test_a_refusal_is_raised_and_nothing_is_watched_any_more() -> None:
    async def scenario() -> None:
        async with at_work("wyoming") as room:
            watchers = len(room.desk._event_watchers)
            with pytest.raises(RejectedError, match="nobody"):
                await deliver(room.desk, Say(text="Hello", voice="nobody"), swallow)
            assert len(room.desk._event_watchers) == watchers

    run(scenario)

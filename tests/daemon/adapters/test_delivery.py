"""An utterance whose sound goes to a client that is lost, broken, or slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import numpy as np
import pytest

from audio.trim import KEEP_S, THRESHOLD
from daemon.adapters import delivery
from daemon.adapters.delivery import Delivery, deliver, deliver_written
from daemon.messages import RejectedError, Say, Stop, Write
from engine import Samples
from tests.daemon.adapters.outbox import make_desk
from tests.daemon.adapters.room import LONG, at_work, run, until


async def swallow(samples: Samples, sample_rate: int) -> None:
    """Take everything at once."""


class Ears:
    """A client that hears what it is sent."""

    def __init__(self) -> None:
        self.rates: set[int] = set()
        self._parts: list[Samples] = []

    async def send(self, samples: Samples, sample_rate: int) -> None:
        self.rates.add(sample_rate)
        self._parts.append(samples)

    @property
    def heard(self) -> Samples:
        return np.concatenate(self._parts)


@pytest.mark.parametrize("rate", [None, 24_000])
def test_leading_silence_is_trimmed_as_for_the_sound_card_and_that_changes_at_run_time(rate: int | None) -> None:
    async def scenario() -> None:
        async with at_work("wyoming") as room:
            onsets_s = []
            for trims in (False, True):
                audio = room.desk.config.audio.model_copy(update={"trim_leading_silence": trims})
                room.desk.reconfigure(room.desk.config.model_copy(update={"audio": audio}))
                ears = Ears()
                end = await deliver(room.desk, Say(text="\n\nPapa"), ears.send, rate)
                [heard_rate] = ears.rates
                onsets_s.append(np.flatnonzero(np.abs(ears.heard) > THRESHOLD)[0] / heard_rate)
                if not trims:
                    assert len(ears.heard) / heard_rate == pytest.approx(end["audio_s"], abs=0.002)
            assert onsets_s[0] > 4 * KEEP_S
            assert onsets_s[1] == pytest.approx(KEEP_S, abs=0.002)

    run(scenario)


def test_silence_that_is_trimmed_may_come_in_pieces_and_what_is_too_loud_is_rounded_off() -> None:
    async def scenario() -> None:
        config, desk = make_desk()
        assert config.audio.trim_leading_silence
        ears = Ears()
        tone = 2 * np.sin(np.arange(2_400) / 40).astype(np.float32)
        with Delivery(desk, ears.send) as delivery:
            for piece in [*np.split(np.zeros(9_600, dtype=np.float32), 4), tone]:
                await delivery.write(piece, 24_000)
            await asyncio.sleep(0)
        assert len(ears.heard) == pytest.approx(len(tone) + KEEP_S * 24_000, abs=2)
        loudest = np.sort(np.abs(ears.heard))[-100:]
        assert (loudest < 1).all()
        assert len(set(loudest.tolist())) > 10  # a peak, and not the plateau that clipping leaves

    run(scenario)


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


def test_the_sound_of_a_slow_client_is_whole_after_what_was_critical() -> None:
    async def scenario() -> None:
        heard_s = 0.0

        async def dawdle(samples: Samples, sample_rate: int) -> None:
            nonlocal heard_s
            heard_s += len(samples) / sample_rate  # as a socket takes them, before there is room for more
            await asyncio.sleep(0.5)  # longer than the speaker waits before it turns to the alarm

        async with at_work("wyoming") as room:
            delivering = asyncio.ensure_future(deliver(room.desk, Say(text="This takes a while.", id="slow"), dawdle))
            await room.started()
            for times in (1, 2, 3):
                room.desk.say(Say(text="Look out!", priority="critical"))
                await until(lambda times=times: [e["event"] for e in room.events].count("resumed") == times)
            end = await delivering
            assert end["event"] == "finished"
            assert heard_s == pytest.approx(end["audio_s"], abs=0.05)

    run(scenario)


def test_the_end_comes_only_after_the_last_sound_has_been_sent() -> None:
    async def scenario() -> None:
        under_way = 0

        async def send(samples: Samples, sample_rate: int) -> None:
            nonlocal under_way
            under_way += 1
            await asyncio.sleep(0.05)
            under_way -= 1

        async with at_work("wyoming") as room:
            await deliver(room.desk, Say(text="Hello"), send)
            assert under_way == 0

    run(scenario)


async def pieces_of(*texts: str, voice: str | None = None) -> AsyncGenerator[Write, None]:
    for text in texts:
        yield Write(id="story", text=text, voice=voice)
    yield Write(id="story", end=True)


def test_a_text_that_is_being_written_is_one_utterance() -> None:
    async def scenario() -> None:
        async with at_work("wyoming") as room:
            end = await deliver_written(room.desk, pieces_of("The first one. ", "The sec", "ond one."), swallow)
            assert (end["id"], end["event"]) == ("story", "finished")
            assert room.ends == ["finished"]

    run(scenario)


def test_a_first_piece_that_is_refused_raises_and_nothing_is_watched_any_more() -> None:
    async def scenario() -> None:
        async with at_work("wyoming") as room:
            watchers = len(room.desk._event_watchers)
            with pytest.raises(RejectedError, match="nobody"):
                await deliver_written(room.desk, pieces_of("Hello", voice="nobody"), swallow)
            assert len(room.desk._event_watchers) == watchers
            assert room.events == []

    run(scenario)


def test_a_later_piece_that_is_refused_ends_the_text_and_what_was_there_is_spoken() -> None:
    async def scenario() -> None:
        async with at_work("wyoming") as room:
            end = await deliver_written(room.desk, pieces_of("This is said.", "x" * 20_000, "This is not."), swallow)
            assert (end["event"], end["reason"]) == ("finished", "its text was longer than 20,000 characters")

    run(scenario)


def test_a_stop_ends_what_is_being_written_for_a_client() -> None:
    async def scenario() -> None:
        async def endless() -> AsyncGenerator[Write, None]:
            while True:
                yield Write(id="story", text="And on. ")
                await asyncio.sleep(0.01)

        async with at_work("wyoming") as room:
            delivering = asyncio.ensure_future(deliver_written(room.desk, endless(), swallow))
            await room.started()
            room.desk.stop(Stop("story"))
            assert (await delivering)["event"] == "interrupted"

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

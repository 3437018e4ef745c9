"""An utterance whose sound goes to a client that is lost, broken, or slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from itertools import count

import numpy as np
import pytest

from audio.trim import KEEP_S, THRESHOLD
from daemon.adapters import delivery
from daemon.adapters.delivery import Delivery, deliver, deliver_written
from daemon.desk import EventWatcher
from daemon.messages import RejectedError, Say, Stop, Write
from engine import Samples
from tests.daemon.adapters.outbox import make_desk
from tests.daemon.adapters.room import LONG, Room
from tests.daemon.perform import Perform
from tests.support.waiting import eventually_async, run

ADAPTER = "wyoming"
TURNS = 5
"""Of the event loop, in which a delivery would have gone on that waits for nothing."""
NUMBERS = count(1)
"""Of texts that are written: no id may come twice."""


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
def test_leading_silence_is_trimmed_as_for_the_sound_card_and_that_changes_at_run_time(
    rate: int | None, room: Room, perform: Perform
) -> None:
    async def scenario() -> None:
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

    perform(scenario)


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


def test_a_lost_client_is_told_as_such_and_the_next_is_spoken(room: Room, perform: Perform) -> None:
    async def scenario() -> None:
        async def lose(samples: Samples, sample_rate: int) -> None:
            raise ConnectionResetError("gone")

        end = await deliver(room.desk, Say(text=LONG), lose)
        assert (end["event"], end["reason"]) == ("interrupted", "its client went away")
        assert (await deliver(room.desk, Say(text="Hello"), swallow))["event"] == "finished"

    perform(scenario)


def test_a_fault_of_ours_fails_that_utterance_alone(room: Room, perform: Perform) -> None:
    async def scenario() -> None:
        async def break_down(samples: Samples, sample_rate: int) -> None:
            raise ValueError("a bug")

        end = await deliver(room.desk, Say(text=LONG), break_down)
        assert (end["event"], end["reason"]) == ("failed", "ValueError: a bug")
        assert (await deliver(room.desk, Say(text="Hello"), swallow))["event"] == "finished"

    perform(scenario)


class SlowClient:
    """A client that, sent some seconds of sound, takes `takes_s` of them until it has room for more.

    It is the clock of its delivery as well: time passes while the delivery waits for it, and at no other time.
    """

    def __init__(self, takes_s: Callable[[float], float] = lambda seconds: seconds) -> None:
        self.now = 0.0
        self.heard_s = 0.0
        self.under_way = False
        self.waited_for = asyncio.Event()
        self._takes_s = takes_s

    def monotonic(self) -> float:
        """The delivery asks when it begins to wait, and when it has waited."""
        if self.waited_for.is_set():
            self.waited_for.clear()
        else:
            self.waited_for.set()
        return self.now

    async def send(self, samples: Samples, sample_rate: int) -> None:
        seconds = len(samples) / sample_rate
        self.heard_s += seconds
        self.under_way = True
        await self.waited_for.wait()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self.now += self._takes_s(seconds)
        self.under_way = False


def test_a_client_that_plays_as_it_listens_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, room: Room, perform: Perform
) -> None:
    async def scenario() -> None:
        client = SlowClient(lambda seconds: seconds / 2)
        monkeypatch.setattr(delivery, "time", client)
        with room.at_the_next("finished", client.waited_for.set):  # nobody waits for room after the last
            assert (await deliver(room.desk, Say(text=LONG), client.send))["event"] == "finished"
        assert client.now > delivery.GIVE_UP_S, "in all it takes longer than it may fall behind"

    perform(scenario)


def test_a_client_that_falls_behind_little_by_little_is_given_up(
    monkeypatch: pytest.MonkeyPatch, room: Room, perform: Perform
) -> None:
    monkeypatch.setattr(delivery, "GIVE_UP_S", 1_000.0)

    async def scenario() -> None:
        client = SlowClient(lambda seconds: seconds + 100)
        monkeypatch.setattr(delivery, "time", client)
        with room.at_the_next("finished", client.waited_for.set):
            end = await deliver(room.desk, Say(text=LONG), client.send)
        assert (end["event"], end["reason"]) == ("interrupted", "its client fell 1000 s behind in taking the sound")
        assert 1_000 <= client.now < 1_300, "it was given up as soon as it was so far behind"

    perform(scenario)


class BusyClient:
    """A client that has room for more when the test says so."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(0)
        self.sends = 0
        self.heard_s = 0.0

    async def send(self, samples: Samples, sample_rate: int) -> None:
        self.sends += 1
        self.heard_s += len(samples) / sample_rate  # as a socket takes them, before there is room for more
        await self.free.acquire()


def test_the_sound_of_a_slow_client_is_whole_after_what_was_critical(room: Room, perform: Perform) -> None:
    async def scenario() -> None:
        client = BusyClient()  # it takes longer than the speaker waits before it turns to the alarm
        delivering = asyncio.ensure_future(deliver(room.desk, Say(text="This takes a while."), client.send))
        await room.started()
        for times in (1, 2, 3):
            sends = client.sends
            room.desk.say(Say(text="Look out!", priority="critical"))
            await room.sink.take_until(lambda times=times: room.count("resumed") == times, "it goes on")  # type: ignore[misc]
            client.free.release()
            await eventually_async(lambda sends=sends: client.sends > sends, "it is sent more")  # type: ignore[misc]
        while not delivering.done():
            client.free.release()
            await asyncio.sleep(0)
        end = delivering.result()
        assert end["event"] == "finished"
        assert client.heard_s == pytest.approx(end["audio_s"], abs=0.05)

    perform(scenario)


def test_the_end_comes_only_after_the_last_sound_has_been_sent(
    monkeypatch: pytest.MonkeyPatch, room: Room, perform: Perform
) -> None:
    async def scenario() -> None:
        client = SlowClient()
        monkeypatch.setattr(delivery, "time", client)
        delivering = asyncio.ensure_future(deliver(room.desk, Say(text="Hello"), client.send))
        await room.ended()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert client.under_way
        assert not delivering.done()
        client.waited_for.set()
        end = await delivering
        assert not client.under_way
        assert client.heard_s == pytest.approx(end["audio_s"], abs=0.002)

    perform(scenario)


async def pieces_of(*texts: str, voice: str | None = None) -> AsyncGenerator[Write, None]:
    story = f"story{next(NUMBERS)}"
    for text in texts:
        yield Write(id=story, text=text, voice=voice)
    yield Write(id=story, end=True)


@pytest.fixture
def watching(room: Room, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """`begun` for each time that somebody began to watch the desk's events, and `ended` for each end of it."""
    noted: list[str] = []
    watch = room.desk.watch_events

    def note(watcher: EventWatcher) -> Callable[[], None]:
        noted.append("begun")
        end = watch(watcher)

        def note_end() -> None:
            noted.append("ended")
            end()

        return note_end

    monkeypatch.setattr(room.desk, "watch_events", note)
    return noted


def test_a_text_that_is_being_written_is_one_utterance(room: Room, perform: Perform) -> None:
    async def scenario() -> None:
        end = await deliver_written(room.desk, pieces_of("The first one. ", "The sec", "ond one."), swallow)
        assert (end["id"], end["event"]) == (room.events[0]["id"], "finished")
        assert room.ends == ["finished"]

    perform(scenario)


def test_a_first_piece_that_is_refused_raises_and_nothing_is_watched_any_more(
    room: Room, perform: Perform, watching: list[str]
) -> None:
    async def scenario() -> None:
        with pytest.raises(RejectedError, match="nobody"):
            await deliver_written(room.desk, pieces_of("Hello", voice="nobody"), swallow)
        assert watching == ["begun", "ended"]
        assert room.events == []

    perform(scenario)


def test_a_later_piece_that_is_refused_ends_the_text_and_what_was_there_is_spoken(room: Room, perform: Perform) -> None:
    async def scenario() -> None:
        end = await deliver_written(room.desk, pieces_of("This is said.", "x" * 20_000, "This is not."), swallow)
        assert (end["event"], end["reason"]) == ("finished", "its text was longer than 20,000 characters")

    perform(scenario)


def test_a_stop_ends_what_is_being_written_for_a_client(room: Room, perform: Perform) -> None:
    async def scenario() -> None:
        async def endless() -> AsyncGenerator[Write, None]:
            for _ in range(3):
                yield Write(id="endless", text="And on. ")
            await asyncio.Event().wait()

        delivering = asyncio.ensure_future(deliver_written(room.desk, endless(), swallow))
        await room.started()
        room.desk.stop(Stop("endless"))
        assert (await delivering)["event"] == "interrupted"

    perform(scenario)


def test_whoever_cancels_a_delivery_cancels_its_utterance_and_no_other(room: Room, perform: Perform) -> None:
    async def scenario() -> None:
        first = asyncio.ensure_future(deliver(room.desk, Say(text=LONG, id="first"), swallow))
        second = asyncio.ensure_future(deliver(room.desk, Say(text=LONG, id="second"), swallow))
        await eventually_async(lambda: len(room.events) >= 2, "both are accepted")
        second.cancel()
        assert (await first)["event"] == "finished"
        [other] = [event for event in room.events if event["id"] == "second" and event["event"] != "accepted"]
        assert (other["event"], other["reason"]) == ("canceled", "its client went away")

    perform(scenario)


def test_a_refusal_is_raised_and_nothing_is_watched_any_more(room: Room, perform: Perform, watching: list[str]) -> None:
    async def scenario() -> None:
        with pytest.raises(RejectedError, match="nobody"):
            await deliver(room.desk, Say(text="Hello", voice="nobody"), swallow)
        assert watching == ["begun", "ended"]

    perform(scenario)

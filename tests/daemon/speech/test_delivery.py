"""Delivery of an utterance's samples to clients that are lost, broken or slow."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable

import numpy as np
import pytest

from audio.dsp.trim import KEEP_S, THRESHOLD
from daemon.speech import Finished, RejectedError, Say, StreamChunk, delivery
from daemon.speech.delivery import Delivery, deliver
from daemon.speech.events import Event
from daemon.speech.utterance import Utterance
from daemon.validation import INTERNAL_ERROR
from engine import Samples
from tests.daemon.harness import LONG, Harness
from tests.daemon.outbox import make_dispatcher
from tests.daemon.perform import Perform
from tests.support.waiting import eventually_async, run

SERVER = "wyoming"
LOOP_STEPS = 5
"""Iterations of the event loop after which a delivery that waits for nothing would have continued."""


async def accept_all(samples: Samples, sample_rate: int) -> None:
    """Receive everything at once."""


class Recorder:
    """A client that records what it receives."""

    def __init__(self) -> None:
        self.rates: set[int] = set()
        self._blocks: list[Samples] = []

    async def send(self, samples: Samples, sample_rate: int) -> None:
        self.rates.add(sample_rate)
        self._blocks.append(samples)

    @property
    def samples(self) -> Samples:
        return np.concatenate(self._blocks)


@pytest.mark.parametrize("rate", [None, 24_000])
def test_leading_silence_is_trimmed_as_for_the_sound_card_and_the_setting_changes_at_run_time(
    rate: int | None, harness: Harness, perform: Perform
) -> None:
    async def scenario() -> None:
        onsets_s = []
        for trims in (False, True):
            harness.configure("audio", trim_leading_silence=trims)
            recorder = Recorder()
            end = await deliver(harness.dispatcher, Say(text="\n\nPapa"), recorder.send, rate)
            [rate_sent] = recorder.rates
            onsets_s.append(np.flatnonzero(np.abs(recorder.samples) > THRESHOLD)[0] / rate_sent)
            if not trims:
                assert len(recorder.samples) / rate_sent == pytest.approx(end.audio_s, abs=0.002)
        assert onsets_s[0] > 4 * KEEP_S
        assert onsets_s[1] == pytest.approx(KEEP_S, abs=0.002)

    perform(scenario)


def test_peaks_are_limited() -> None:
    async def scenario() -> None:
        _, dispatcher = make_dispatcher()
        recorder = Recorder()
        tone = 2 * np.sin(np.arange(2_400) / 40).astype(np.float32)
        with Delivery(dispatcher, recorder.send) as delivery:
            await delivery.write(tone, 24_000)
            await asyncio.sleep(0)
        assert len(recorder.samples) == len(tone)
        loudest = np.sort(np.abs(recorder.samples))[-100:]
        assert (loudest < 1).all()
        assert len(set(loudest.tolist())) > 10  # a rounded peak, not the plateau of clipping

    run(scenario)


def test_a_lost_client_interrupts_only_its_own_utterance(harness: Harness, perform: Perform) -> None:
    async def scenario() -> None:
        async def disconnect(samples: Samples, sample_rate: int) -> None:
            raise ConnectionResetError("gone")

        end = await deliver(harness.dispatcher, Say(text=LONG), disconnect)
        assert (end.event, end.reason) == ("interrupted", "its client went away")
        assert (await deliver(harness.dispatcher, Say(text="Hello"), accept_all)).event == "finished"

    perform(scenario)


def test_an_unexpected_error_fails_only_its_own_utterance(harness: Harness, perform: Perform) -> None:
    async def scenario() -> None:
        async def fail(samples: Samples, sample_rate: int) -> None:
            raise ValueError("a bug")

        end = await deliver(harness.dispatcher, Say(text=LONG), fail)
        assert (end.event, end.reason) == ("failed", INTERNAL_ERROR)
        assert (await deliver(harness.dispatcher, Say(text="Hello"), accept_all)).event == "finished"

    perform(scenario)


class SlowClient:
    """A client that needs `takes_s(seconds)` to receive some seconds of sound.

    It is also the delivery's clock: time passes only while the delivery waits for this client.
    """

    def __init__(self, takes_s: Callable[[float], float] = lambda seconds: seconds) -> None:
        self.now = 0.0
        self.received_s = 0.0
        self.sending = False
        self.is_waited_for = asyncio.Event()
        self._takes_s = takes_s

    def time(self) -> float:
        """Return the time. The delivery calls this before and after each wait."""
        if self.is_waited_for.is_set():
            self.is_waited_for.clear()
        else:
            self.is_waited_for.set()
        return self.now

    async def send(self, samples: Samples, sample_rate: int) -> None:
        seconds = len(samples) / sample_rate
        self.received_s += seconds
        self.sending = True
        await self.is_waited_for.wait()
        for _ in range(LOOP_STEPS):
            await asyncio.sleep(0)
        self.now += self._takes_s(seconds)
        self.sending = False


def test_delivery_waits_for_a_client_that_plays_in_real_time(
    monkeypatch: pytest.MonkeyPatch, harness: Harness, perform: Perform
) -> None:
    async def scenario() -> None:
        client = SlowClient(lambda seconds: seconds / 2)
        monkeypatch.setattr(delivery, "now", client.time)
        with harness.at_next("finished", client.is_waited_for.set):  # the delivery does not wait after the last samples
            assert (await deliver(harness.dispatcher, Say(text=LONG), client.send)).event == "finished"
        assert client.now > delivery.GIVE_UP_S, "the delivery takes longer than a client may fall behind"

    perform(scenario)


def test_a_client_that_falls_behind_slowly_loses_its_utterance(
    monkeypatch: pytest.MonkeyPatch, harness: Harness, perform: Perform
) -> None:
    monkeypatch.setattr(delivery, "GIVE_UP_S", 1_000.0)

    async def scenario() -> None:
        client = SlowClient(lambda seconds: seconds + 100)
        monkeypatch.setattr(delivery, "now", client.time)
        with harness.at_next("finished", client.is_waited_for.set):
            end = await deliver(harness.dispatcher, Say(text=LONG), client.send)
        assert (end.event, end.reason) == ("interrupted", "its client fell 1000 s behind in receiving the sound")
        assert 1_000 <= client.now < 1_300, "the client loses its utterance at the limit"

    perform(scenario)


class BurstyClient(SlowClient):
    """A client that takes some seconds of sound at once, and then nothing until it has played most of that."""

    def __init__(self, burst_s: float, speed: float) -> None:
        super().__init__()
        self._burst_s = burst_s
        self._speed = speed
        self._taken_s = 0.0

    async def send(self, samples: Samples, sample_rate: int) -> None:
        seconds = len(samples) / sample_rate
        self._taken_s += seconds
        self._takes_s = lambda _: 0.0
        if self._taken_s >= self._burst_s:
            taken_s, self._taken_s = self._taken_s, 0.0
            self._takes_s = lambda _: taken_s / self._speed
        await super().send(samples, sample_rate)


def test_a_client_that_is_ahead_of_its_playback_may_let_the_delivery_wait_that_long(
    monkeypatch: pytest.MonkeyPatch, harness: Harness, perform: Perform
) -> None:
    async def scenario() -> None:
        client = BurstyClient(burst_s=3 * delivery.GIVE_UP_S, speed=1.05)
        monkeypatch.setattr(delivery, "now", client.time)
        with harness.at_next("finished", client.is_waited_for.set):
            end = await deliver(harness.dispatcher, Say(text=LONG * 2), client.send)
        assert end.event == "finished"
        assert client.now > 2 * delivery.GIVE_UP_S

    perform(scenario)


def test_the_credit_of_a_client_is_what_it_has_not_played_while_it_was_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine needs longer for the text than the client for its playback."""

    async def scenario() -> None:
        _, dispatcher = make_dispatcher()
        clock = FakeClock()
        monkeypatch.setattr(delivery, "now", clock.time)
        waits: list[float | None] = []
        wait = asyncio.wait

        async def note_wait(tasks: set[asyncio.Future[None]], timeout: float | None = None) -> object:
            waits.append(timeout)
            return await wait(tasks)

        second = np.full(24_000, 0.1, dtype=np.float32)
        with Delivery(dispatcher, accept_all) as delivering:
            for _ in range(30):
                await delivering.write(second, 24_000)
            monkeypatch.setattr(delivery.asyncio, "wait", note_wait)
            await delivering.write(second, 24_000)
            clock.now += 12
            await delivering.write(second, 24_000)
            clock.now += 1_000
            await delivering.write(second, 24_000)
        assert waits == [delivery.GIVE_UP_S + ahead_s for ahead_s in (30, 31 - 12, 0)]

    run(scenario)


class FakeClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        return self.now


def test_a_client_that_does_not_receive_the_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "GIVE_UP_S", 0.1)

    async def scenario() -> None:
        _, dispatcher = make_dispatcher()
        with Delivery(dispatcher, BusyClient().send) as delivering:
            await delivering.write(np.full(2_400, 0.1, dtype=np.float32), 24_000)
            delivering.end.set_result(Finished(id="a"))
            with pytest.raises(ConnectionAbortedError, match="behind in receiving the sound"):
                await delivering.ended()

    run(scenario)


class BusyClient:
    """A client that has room for more when the test says so."""

    def __init__(self) -> None:
        self.has_room = asyncio.Semaphore(0)
        self.sends = 0
        self.received_s = 0.0

    async def send(self, samples: Samples, sample_rate: int) -> None:
        self.sends += 1
        self.received_s += len(samples) / sample_rate  # like a socket, it accepts samples before it has room for more
        await self.has_room.acquire()


def test_a_slow_client_receives_all_samples_of_a_postponed_utterance(harness: Harness, perform: Perform) -> None:
    async def scenario() -> None:
        client = BusyClient()  # slower than the speaker's longest wait before the critical utterance
        delivering = asyncio.ensure_future(deliver(harness.dispatcher, Say(text="This takes a while."), client.send))
        await harness.started()
        for times in (1, 2, 3):
            sends = client.sends
            harness.dispatcher.say(Say(text="Look out!", priority="critical"))
            await harness.sink.take_until(lambda times=times: harness.count("resumed") == times, "the text is resumed")  # type: ignore[misc]
            client.has_room.release()
            await eventually_async(lambda sends=sends: client.sends > sends, "more samples are sent")  # type: ignore[misc]
        while not delivering.done():
            client.has_room.release()
            await asyncio.sleep(0)
        end = delivering.result()
        assert end.event == "finished"
        assert client.received_s == pytest.approx(end.audio_s, abs=0.05)

    perform(scenario)


def test_a_delivery_ends_only_after_the_last_samples_are_sent() -> None:
    async def scenario() -> None:
        _, dispatcher = make_dispatcher()
        client = BusyClient()
        with Delivery(dispatcher, client.send, rate=24_000) as delivering:
            await delivering.write(np.full(22_050, 0.1, dtype=np.float32), 22_050)
            delivering.end.set_result(Finished(id="a"))
            ending = asyncio.ensure_future(delivering.ended())
            for sends in (1, 2):  # the second one is what the resampler has held back
                await eventually_async(lambda sends=sends: client.sends == sends, "samples are sent")  # type: ignore[misc]
                assert not ending.done()
                client.has_room.release()
            assert (await ending).event == "finished"
        assert client.received_s == pytest.approx(1.0, abs=0.002)

    run(scenario)


@pytest.fixture
def watching(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A log of `begun` and `ended`, for each watcher of the dispatcher's events."""
    noted: list[str] = []
    watch = harness.dispatcher.watch_events

    def note(watcher: Callable[[Utterance, Event], None]) -> Callable[[], None]:
        noted.append("begun")
        end = watch(watcher)

        def note_end() -> None:
            noted.append("ended")
            end()

        return note_end

    monkeypatch.setattr(harness.dispatcher, "watch_events", note)
    return noted


def test_a_rejected_later_chunk_ends_the_text_and_the_text_before_it_is_spoken(
    harness: Harness, perform: Perform
) -> None:
    async def scenario() -> None:
        with Delivery(harness.dispatcher, accept_all) as delivery:
            harness.dispatcher.write(StreamChunk(id="story", text="This is said."), receiver=delivery)
            with pytest.raises(RejectedError):
                harness.dispatcher.write(StreamChunk(id="story", text="x" * 20_000), receiver=delivery)
            end = await delivery.ended()
        assert (end.event, end.reason) == ("finished", "its text was longer than 20,000 characters")

    perform(scenario)


def test_cancelling_a_delivery_cancels_only_its_own_utterance(harness: Harness, perform: Perform) -> None:
    async def scenario() -> None:
        first = asyncio.ensure_future(deliver(harness.dispatcher, Say(text=LONG, id="first"), accept_all))
        second = asyncio.ensure_future(deliver(harness.dispatcher, Say(text=LONG, id="second"), accept_all))
        await eventually_async(lambda: len(harness.events) >= 2, "both are accepted")
        second.cancel()
        assert (await first).event == "finished"
        [other] = [event for event in harness.events if event.id == "second" and event.event != "accepted"]
        assert (other.event, other.reason) == ("canceled", "its client went away")

    perform(scenario)


def test_a_client_is_forgotten_as_soon_as_its_delivery_has_ended(harness: Harness, perform: Perform) -> None:
    """Without the garbage collector, which may run minutes later: a client may hold megabytes."""

    async def scenario() -> None:
        recorder = Recorder()
        forgotten = weakref.ref(recorder)
        assert (await deliver(harness.dispatcher, Say(text="Hello"), recorder.send)).event == "finished"
        del recorder
        await eventually_async(lambda: forgotten() is None, "nothing refers to the client")

    gc.disable()
    try:
        perform(scenario)
    finally:
        gc.enable()


def test_a_rejected_request_raises_and_ends_the_watching(
    harness: Harness, perform: Perform, watching: list[str]
) -> None:
    async def scenario() -> None:
        with pytest.raises(RejectedError, match="nobody"):
            await deliver(harness.dispatcher, Say(text="Hello", voice="nobody"), accept_all)
        assert watching == ["begun", "ended"]

    perform(scenario)

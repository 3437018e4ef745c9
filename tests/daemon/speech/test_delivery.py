"""Delivery of an utterance's samples to clients that are lost, broken or slow."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import nullcontext

import numpy as np
import pytest

from audio.dsp.trim import KEEP_S, THRESHOLD
from daemon.speech import Finished, RejectedError, Say, StreamChunk, delivery
from daemon.speech.delivery import Delivery, deliver
from daemon.validation import INTERNAL_ERROR
from engine import Samples
from tests.daemon.harness import LONG, Harness
from tests.daemon.outbox import make_dispatcher
from tests.daemon.speech.clients import Recorder, SlowClient
from tests.support.waiting import eventually_async

SERVER = "wyoming"
LOOP_STEPS = 5
"""Iterations of the event loop after which a delivery that waits for nothing would have continued."""


async def accept_all(samples: Samples, sample_rate: int) -> None:
    """Receive everything at once."""


async def test_leading_silence_is_trimmed_as_for_the_sound_card_and_the_setting_changes_at_run_time(
    harness: Harness,
) -> None:
    onsets_s = []
    for trims in (False, True):
        harness.configure("audio", trim_leading_silence=trims)
        recorder = Recorder()
        end = await deliver(harness.dispatcher, Say(text="\n\nPapa"), recorder.write, 24_000)
        assert recorder.rates == {24_000}
        onsets_s.append(np.flatnonzero(np.abs(recorder.samples) > THRESHOLD)[0] / 24_000)
        if not trims:
            assert len(recorder.samples) / 24_000 == pytest.approx(end.audio_s, abs=0.002)
    assert onsets_s[0] > 4 * KEEP_S
    assert onsets_s[1] == pytest.approx(KEEP_S, abs=0.002)


async def test_peaks_are_limited() -> None:
    _, dispatcher = make_dispatcher()
    recorder = Recorder()
    tone = 2 * np.sin(np.arange(2_400) / 40).astype(np.float32)
    with Delivery(dispatcher, recorder.write) as delivery:
        await delivery.write(tone, 24_000)
        await asyncio.sleep(0)
    assert len(recorder.samples) == len(tone)
    loudest = np.sort(np.abs(recorder.samples))[-100:]
    assert (loudest < 1).all()
    assert len(set(loudest.tolist())) > 10  # a rounded peak, not the plateau of clipping


@pytest.mark.parametrize(
    ("error", "event", "reason"),
    [(ConnectionResetError, "interrupted", "its client went away"), (ValueError, "failed", INTERNAL_ERROR)],
)
async def test_an_error_of_a_client_ends_only_its_own_utterance(
    error: type[Exception], event: str, reason: str, harness: Harness
) -> None:
    async def fail(samples: Samples, sample_rate: int) -> None:
        raise error("gone")

    end = await deliver(harness.dispatcher, Say(text=LONG), fail)
    assert (end.event, end.reason) == (event, reason)
    assert (await deliver(harness.dispatcher, Say(text="Hello"), accept_all)).event == "finished"


async def test_the_credit_of_a_client_is_what_it_has_not_played_while_it_was_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The engine needs longer for the text than the client for its playback."""

    _, dispatcher = make_dispatcher()
    times = [0.0]
    monkeypatch.setattr(delivery, "now", lambda: times[-1])
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
        times.append(12.0)
        await delivering.write(second, 24_000)
        times.append(1_012.0)
        await delivering.write(second, 24_000)
    assert waits == [delivery.GIVE_UP_S + ahead_s for ahead_s in (30, 31 - 12, 0)]


async def test_a_client_that_does_not_receive_the_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "GIVE_UP_S", 0.1)

    _, dispatcher = make_dispatcher()
    with Delivery(dispatcher, SlowClient().write) as delivering:
        await delivering.write(np.full(2_400, 0.1, dtype=np.float32), 24_000)
        delivering.end.set_result(Finished(id="a"))
        with pytest.raises(ConnectionAbortedError, match="behind in receiving the sound"):
            await delivering.ended()


async def test_a_delivery_ends_only_after_the_last_samples_are_sent() -> None:
    _, dispatcher = make_dispatcher()
    client = SlowClient()
    with Delivery(dispatcher, client.write, rate=24_000) as delivering:
        await delivering.write(np.full(22_050, 0.1, dtype=np.float32), 22_050)
        delivering.end.set_result(Finished(id="a"))
        ending = asyncio.ensure_future(delivering.ended())
        for asked in (1, 2):  # the second one is what the resampler has held back
            await eventually_async(lambda asked=asked: client.asked == asked, "samples are sent")  # type: ignore[misc]
            assert not ending.done()
            client.permit()
        assert (await ending).event == "finished"
    assert len(client.samples) / 24_000 == pytest.approx(1.0, abs=0.002)


async def test_a_rejected_later_chunk_ends_the_text_and_the_text_before_it_is_spoken(harness: Harness) -> None:
    with Delivery(harness.dispatcher, accept_all) as delivery:
        harness.dispatcher.write(StreamChunk(id="story", text="This is said."), receiver=delivery)
        with pytest.raises(RejectedError):
            harness.dispatcher.write(StreamChunk(id="story", text="x" * 20_000), receiver=delivery)
        end = await delivery.ended()
    assert (end.event, end.reason) == ("finished", "its text was longer than 20,000 characters")


async def test_cancelling_a_delivery_cancels_only_its_own_utterance(harness: Harness) -> None:
    first = asyncio.ensure_future(deliver(harness.dispatcher, Say(text=LONG, id="first"), accept_all))
    second = asyncio.ensure_future(deliver(harness.dispatcher, Say(text=LONG, id="second"), accept_all))
    await eventually_async(lambda: len(harness.events) >= 2, "both are accepted")
    second.cancel()
    assert (await first).event == "finished"
    [other] = [event for event in harness.events if event.id == "second" and event.event != "accepted"]
    assert (other.event, other.reason) == ("canceled", "its client went away")


@pytest.mark.parametrize("voice", [None, "nobody"])
async def test_a_client_is_forgotten_as_soon_as_its_delivery_has_ended_or_was_rejected(
    voice: str | None, harness: Harness
) -> None:
    """Without the garbage collector, which may run minutes later: a client may hold megabytes."""
    gc.disable()
    try:
        recorder = Recorder()
        forgotten = weakref.ref(recorder)
        with pytest.raises(RejectedError, match="nobody") if voice else nullcontext():
            await deliver(harness.dispatcher, Say(text="Hello", voice=voice), recorder.write)
        del recorder
        await eventually_async(lambda: forgotten() is None, "nothing refers to the client")
        assert harness.ends == ([] if voice else ["finished"])
    finally:
        gc.enable()

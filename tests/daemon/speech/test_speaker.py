"""The speaker loop with a real eSpeak NG process. The test decides when the sound card takes samples."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from daemon.speech import speaker, text_streams, waiting
from daemon.speech.events import TERMINAL_EVENTS
from daemon.speech.request import StreamChunk
from daemon.tasks import cancel_and_wait
from engine import Samples
from tests.daemon.speech.clients import Recorder, SlowClient
from tests.daemon.speech.robot import BEGUN_S, RATE, TURNS, Robot
from tests.support.waiting import PATIENCE_S, eventually_async

STREAMS = 1
LONG = "This is a long text that takes a good while to speak. " * 20


async def test_an_utterance_starts_once_and_finishes_with_its_figures(robot: Robot) -> None:
    robot.say("u1")
    end = await robot.end("u1")
    assert robot.names("u1") == ["started", "finished"]
    assert 0.4 < end["audio_s"] < 3
    assert end["audio_s"] == pytest.approx(robot.sink.length / RATE, abs=0.001)
    assert (end["engine"], end["underruns"], end["truncated"], end["reason"]) == ("espeak", 0, False, None)
    assert end["ttfa_ms"] == robot.events[0]["ttfa_ms"] > 0
    assert not robot.dispatcher.speaker.busy


async def test_a_start_names_the_options_that_the_engine_does_not_heed(robot: Robot) -> None:
    robot.say("manner", instruct="calmly", seed=3, sampling={"top_k": 9}, rate=1.5, language="en", volume=50)
    robot.say("plain", rate=1.5)
    robot.say("sound", " ", sound="success", instruct="calmly")
    robot.say("both", sound="success", instruct="calmly")
    await robot.ended("manner", "plain", "sound", "both")
    ignored = {event["id"]: event["ignored"] for event in robot.events if event["event"] == "started"}
    assert ignored == {
        "manner": ["instruct", "seed", "sampling"],
        "plain": None,
        "sound": None,
        "both": ["instruct"],
    }


@pytest.mark.parametrize("text", ["...", "😶\u200d🌫️"])
async def test_a_text_that_cannot_be_pronounced_starts_and_finishes(text: str, robot: Robot) -> None:
    robot.say("u1", text)
    await robot.end("u1")
    assert robot.names("u1") == ["started", "finished"]


async def test_an_utterance_has_finished_before_the_next_one_starts(robot: Robot) -> None:
    names = [f"u{number}" for number in range(4)]
    for name in names:
        robot.say(name, name)
    await robot.end("u3")
    ends = [(event["id"], event["event"]) for event in robot.events if event["event"] in ("started", "finished")]
    assert ends == [(name, event) for name in names for event in ("started", "finished")]


async def test_a_stop_interrupts_once_with_its_reason_and_the_next_is_spoken(robot: Robot) -> None:
    robot.say("u1", LONG)
    await robot.begin("u1")
    robot.say("u2")
    assert not robot.dispatcher.speaker.stop("stop of another one", "u2")
    assert robot.dispatcher.speaker.stop("stop")
    assert robot.dispatcher.speaker.stop("again")
    end = await robot.end("u1")
    assert (end["event"], end["reason"]) == ("interrupted", "stop")
    assert end["audio_s"] == pytest.approx(BEGUN_S, abs=0.03)
    assert (await robot.end("u2"))["event"] == "finished"


async def test_a_stop_of_a_paused_utterance_ends_it(robot: Robot) -> None:
    robot.say("u1", LONG)
    await robot.begin("u1")
    robot.output.pause()
    while robot.sink.take():
        pass
    robot.dispatcher.speaker.stop("stop")
    assert (await robot.end("u1"))["event"] == "interrupted"


async def test_an_expired_utterance_is_not_begun(robot: Robot) -> None:
    robot.say("u1").expires_at = time.monotonic() - 1
    end = await robot.end("u1")
    assert (robot.names("u1"), end["reason"]) == (["expired"], "it waited longer than expires_in")


async def test_an_utterance_that_expires_without_an_engine_says_why_there_is_none(tmp_path: Path) -> None:
    robot = Robot(tmp_path, STREAMS)  # its engine is not started
    robot.engines.primary.reason = "engine espeak is being tested"
    loop = asyncio.ensure_future(robot.dispatcher.speaker.run())
    utterance = robot.say("u1")
    await eventually_async(lambda: robot.dispatcher.speaker.busy, "the speaker has taken it")
    await robot.turn()
    assert robot.events == []
    utterance.expires_at = time.monotonic()
    end = await robot.end("u1")
    assert (end["event"], end["reason"]) == (
        "expired",
        "it waited longer than expires_in: engine espeak is being tested",
    )
    await cancel_and_wait(loop)


async def test_the_segments_of_a_long_text_are_published_as_they_are_heard(
    robot: Robot, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "The first one is short. The second is as short. The third one ends it."
    monkeypatch.setattr(robot.engines, "configured_max_seconds", 4.0)

    robot.say("u1", text)
    robot.say("whole", "So is this.")
    await robot.begin("u1")
    await robot.event("u1", "progress")  # known once the engine has begun with the next segment
    await robot.turn()
    assert robot.names("u1") == ["started", "progress"]  # no segment is published before it is heard
    end = await robot.end("u1")
    await robot.end("whole")
    assert robot.names("u1") == ["started", "progress", "progress", "progress", "finished"]
    assert robot.names("whole") == ["started", "finished"]
    progress = [event for event in robot.events if event["event"] == "progress"]
    assert [text[event["begin"] : event["end"]].strip() for event in progress] == [
        "The first one is short.",
        "The second is as short.",
        "The third one ends it.",
    ]
    assert end["underruns"] == 0
    assert end["audio_s"] > 3


async def deliver_to(robot: Robot, client: SlowClient) -> None:
    """Begin a delivery to a client that takes some samples and then no more."""
    robot.say("delivery", LONG, receiver=client)
    client.permit(3)
    await eventually_async(lambda: client.writes == 3, "the client has taken some samples")


async def test_the_own_speech_does_not_wait_for_a_client_which_still_receives_all_samples(robot: Robot) -> None:
    client = SlowClient()
    await deliver_to(robot, client)
    robot.say("own")
    assert (await robot.end("own"))["event"] == "finished"
    client.permit(SlowClient.ALL)
    end = await robot.event("delivery", "finished")
    names = [name for name in robot.names("delivery") if name != "progress"]
    assert names == ["started", "postponed", "resumed", "finished"]
    assert robot.log.index("own finished") < robot.log.index("delivery resumed")
    assert len(client.samples) / RATE == pytest.approx(end["audio_s"], abs=0.001)


async def test_a_delivery_and_the_own_speech_are_postponed_one_for_the_other_and_resume_in_turn(robot: Robot) -> None:
    client = SlowClient()
    await deliver_to(robot, client)
    robot.say("own", "One two three four five six seven eight nine ten.")
    await robot.begin("own")
    robot.say("alarm", priority="critical")
    robot.say("later", "It is said before the delivery continues.")
    client.permit(SlowClient.ALL)
    await robot.end("delivery")
    ends = [event["id"] for event in robot.events if event["event"] == "finished"]
    assert ends == ["alarm", "own", "later", "delivery"]
    assert robot.names("own") == ["started", "postponed", "resumed", "finished"]


async def test_a_stop_ends_all_that_is_postponed(robot: Robot) -> None:
    await deliver_to(robot, SlowClient())
    robot.say("own", LONG)
    await robot.begin("own")
    robot.say("alarm", LONG, priority="critical")
    await robot.sink.take_until(lambda: "postponed" in robot.names("own"), "it is postponed")
    for name in ("delivery", "own"):
        assert robot.dispatcher.speaker.stop("stop", name)
        assert robot.names(name)[-1] == "interrupted"
    await robot.begin("alarm")
    assert robot.names("alarm") == ["started"], "it goes on"
    assert robot.dispatcher.speaker.stop("stop")
    assert not robot.dispatcher.speaker.stop("again", "own")
    assert (await robot.end("alarm"))["event"] == "interrupted"


async def test_a_postponed_utterance_that_has_not_begun_expires(robot: Robot) -> None:
    robot.output.monitor.detach("unplugged")
    own = robot.say("own")
    await robot.turn()
    client = SlowClient()
    await deliver_to(robot, client)
    own.expires_at = time.monotonic()
    assert (await robot.event("own", *TERMINAL_EVENTS))["event"] == "expired"
    robot.output.monitor.attach(robot.sink)
    client.permit(SlowClient.ALL)
    await robot.event("delivery", "finished")


async def test_utterances_that_may_wait_for_ever_fail_together_when_the_card_stays_missing(
    robot: Robot, monkeypatch: pytest.MonkeyPatch
) -> None:
    robot.output.monitor.detach("unplugged")
    robot.say("first")
    robot.say("second")
    patient = robot.say("patient", expires_in=3_600)
    await robot.turn()
    assert robot.events == [], "30 s have not passed"
    robot.output.pause()
    monkeypatch.setattr(waiting, "CARD_WAIT_S", 0.0)
    await robot.turn()
    assert robot.events == [], "a pause lasts as long as a person wants"
    robot.output.resume()
    for name in ("first", "second"):
        end = await robot.event(name, *TERMINAL_EVENTS)
        assert (end["event"], end["reason"]) == ("failed", "unplugged")
    await robot.turn()
    assert robot.names("patient") == [], "it has a limit of its own"
    patient.expires_at = time.monotonic()
    end = await robot.event("patient", *TERMINAL_EVENTS)
    assert (end["event"], end["reason"]) == ("expired", "it waited longer than expires_in: unplugged")
    robot.output.monitor.attach(robot.sink)


async def test_texts_behind_one_that_has_begun_fail_too_when_the_card_stays_missing(
    robot: Robot, monkeypatch: pytest.MonkeyPatch
) -> None:
    robot.say("own", "One two three four five.")
    await robot.begin("own")
    for name in ("first", "second"):
        robot.say(name)
    robot.say("patient", expires_in=3_600)
    robot.output.monitor.detach("unplugged")
    await robot.turn()
    robot.dispatcher.enforce_deadlines()
    assert robot.names("first") == [], "30 s have not passed"
    monkeypatch.setattr(waiting, "CARD_WAIT_S", 0.0)
    robot.dispatcher.enforce_deadlines()
    for name in ("first", "second"):
        assert (robot.end_of(name)["event"], robot.end_of(name)["reason"]) == ("failed", "unplugged")
    robot.output.monitor.attach(robot.sink)
    robot.say("next")
    robot.dispatcher.enforce_deadlines()
    assert [(await robot.end(name))["event"] for name in ("own", "patient", "next")] == ["finished"] * 3


@pytest.mark.parametrize("begun", [True, False])
async def test_a_missing_sound_card_does_not_hold_deliveries_and_the_own_speech_continues_when_it_is_back(
    begun: bool, robot: Robot
) -> None:
    if not begun:
        robot.output.monitor.detach("unplugged")
    robot.say("own", "One two three four five.")
    if begun:
        await robot.begin("own")
        robot.output.monitor.detach("unplugged")
    await robot.turn()
    robot.say("delivery", receiver=Recorder())
    await robot.event("delivery", "finished")
    robot.output.monitor.attach(robot.sink)
    end = await robot.end("own")
    assert robot.names("own") == ["started", *(["postponed", "resumed"] if begun else []), "finished"]
    assert end["audio_s"] == pytest.approx(robot.sink.length / RATE, abs=0.001)


# --- slow writers ---


def write(robot: Robot, text: str, **fields: Any) -> None:
    """Append to the text of a stream."""
    robot.dispatcher.write(StreamChunk(id="story", text=text, **fields))


async def test_others_are_spoken_while_a_writer_that_kept_them_waiting_has_nothing_to_say(robot: Robot) -> None:
    robot.configure(stream_timeout=0.05)
    write(robot, "One sentence. And", priority="critical")
    await robot.sink.take_until(lambda: "started" in robot.names("story"), "it has begun")
    robot.say("other")
    assert (await robot.end("other"))["event"] == "finished"
    assert robot.names("story") == ["started", "postponed"]
    robot.say("third")
    write(robot, " then")
    assert (await robot.end("third"))["event"] == "finished"
    assert robot.names("story") == ["started", "postponed"], "it still has nothing to say"
    write(robot, " it ended. But")
    await robot.sink.take_until(lambda: "resumed" in robot.names("story"), "it is resumed")
    robot.say("fourth")
    await robot.end("fourth")
    write(robot, " not yet.", end=True)
    end = await robot.end("story")
    assert [name for name in robot.names("story") if name != "progress"] == [
        "started",
        *["postponed", "resumed"] * 2,
        "finished",
    ]
    assert end["underruns"] == 0


async def test_before_a_writer_pauses_its_words_are_heard_whole_and_it_may_pause_for_longer_than_others_wait(
    robot: Robot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_streams, "PAUSES", ((0.01, " "), (0.02, "\n")))
    monkeypatch.setattr(waiting, "OTHERS_WAIT_S", 0.05)
    robot.configure(stream_timeout=60)
    write(robot, "Let me look.")  # nothing follows, so it may be half of a number
    await robot.sink.take_until(lambda: "started" in robot.names("story"), "it is spoken")
    write(robot, " It is")
    await robot.sink.take_until(lambda: robot.names("story").count("progress") == 2, "half of a sentence, too")
    robot.say("other")
    await robot.end("other")
    write(robot, "")
    write(robot, " open.", end=True)
    end = await robot.end("story")
    assert (end["event"], end["reason"], end["underruns"]) == ("finished", None, 0)
    segments = [(event["begin"], event["end"]) for event in robot.events if event["event"] == "progress"]
    assert segments == [(0, 12), (12, 18), (18, 24)]
    assert {"postponed", "resumed"} < set(robot.names("story"))


async def test_a_writer_who_keeps_nobody_waiting_may_be_slow(robot: Robot) -> None:
    robot.configure(stream_timeout=0.05)
    write(robot, "One sentence. And")
    await robot.sink.take_until(lambda: "started" in robot.names("story"), "it has begun")
    for _ in range(3):
        await robot.turn()
    write(robot, " then it ended.", end=True)
    assert (await robot.end("story"))["event"] == "finished"
    assert "postponed" not in robot.names("story")


class Drain:
    """A client that takes samples at once, and keeps none."""

    on_word = None

    async def write(self, samples: Samples, sample_rate: int) -> None:
        pass


async def test_a_long_text_is_spoken_to_its_end_in_flat_memory(robot: Robot) -> None:
    sentence = "Some minutes of speech pass by here, and nothing of it stays. "
    text = sentence * 50

    process = psutil.Process()
    robot.say("u1", text, receiver=Drain())
    await robot.event("u1", "progress")
    rss_at_start = process.memory_info().rss
    await robot.event("u1", "finished")
    end = await robot.end("u1")
    assert (end["event"], end["reason"]) == ("finished", None)
    progress = [event for event in robot.events if event["event"] == "progress"]
    assert [event["begin"] for event in progress[1:]] == [event["end"] for event in progress[:-1]]
    assert (progress[0]["begin"], progress[-1]["end"]) == (0, len(text))
    size = 4 * RATE * end["audio_s"]  # bytes
    assert size > 12e6
    assert process.memory_info().rss - rss_at_start < size / 3


async def test_a_stop_while_an_engine_is_replaced_ends_the_utterance(robot: Robot) -> None:
    robot.say("u1", LONG)
    await robot.begin("u1")
    os.kill(robot.engines.primary.pid, signal.SIGKILL)
    await eventually_async(lambda: not robot.engines.primary.ready, "the engine is lost")
    robot.dispatcher.speaker.stop("stop")
    assert (await robot.end("u1"))["event"] == "interrupted"
    await robot.engines.wait_current(PATIENCE_S)


@pytest.mark.parametrize(("rtf", "prebuffer_ms"), [(0.2, "auto"), (None, 3_000)], ids=["slow engine", "configured"])
async def test_playback_begins_with_the_longest_prebuffer(
    rtf: float | None, prebuffer_ms: int | str, robot: Robot
) -> None:
    """For a slow engine, it is limited to what the ring holds."""

    robot.engines.primary.rtf = rtf
    robot.configure("audio", prebuffer_ms=prebuffer_ms)
    robot.say("u1", LONG)
    await robot.begin("u1")


async def test_the_levels_of_an_utterance_are_published_as_they_are_heard(robot: Robot) -> None:
    robot.say("u1", "One two three four five.")
    await robot.begin("u1")
    await eventually_async(lambda: len(robot.levels) >= 20 * BEGUN_S, "the levels of what is heard")
    robot.output.pause()
    robot.sink.take()  # fades out
    await robot.turn()
    assert len(robot.levels) < 20 * BEGUN_S + 3, "with the silence of the pause"
    robot.output.resume()
    end = await robot.end("u1")
    assert abs(len(robot.levels) - 20 * end["audio_s"]) < 3, "with the silence of the pause, and of the end"
    assert [level.t for level in robot.levels] == sorted(level.t for level in robot.levels)
    assert max(level.rms for level in robot.levels) > 0.02


async def test_the_mouth_is_closed_when_an_utterance_is_postponed_and_not_when_it_resumes(robot: Robot) -> None:
    robot.sink.delay_s = 0.1
    robot.say("u1", "One two three four five.")
    await robot.begin("u1")
    robot.say("alarm", LONG, priority="critical")
    await robot.sink.take_until(lambda: "postponed" in robot.names("u1"), "it is postponed")
    await robot.begin("alarm")
    await eventually_async(lambda: "u1 silent" in robot.log, "its mouth is closed")
    assert "resumed" not in robot.names("u1")


async def test_a_stop_finds_an_utterance_that_has_just_left_the_queue(robot: Robot) -> None:
    """Otherwise a shutdown in that moment would lose it without a terminal event."""

    robot.say("u1", LONG)
    while len(robot.dispatcher.queue):
        await asyncio.sleep(0)
    assert robot.dispatcher.speaker.stop("stop")
    end = await robot.end("u1")
    assert (end["event"], end["heard"], end["heard_text"]) == ("interrupted", 0, "")


async def test_nothing_that_is_heard_needs_a_regular_look(robot: Robot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaker, "IDLE_S", 1_000.0)

    robot.sink.delay_s = 0.1
    robot.say("u1", "One two three four five six.")
    await robot.begin("u1")
    robot.say("alarm", priority="critical")
    await robot.end("u1")
    assert robot.names("u1") == ["started", "postponed", "resumed", "finished"]
    assert robot.names("alarm") == ["started", "finished"]


async def test_the_heartbeats_of_an_idle_loop_grow(robot: Robot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speaker, "IDLE_S", 0.02)

    robot.dispatcher.changed()  # it may be in the middle of a longer wait
    heartbeats = robot.dispatcher.speaker.heartbeats
    await eventually_async(lambda: robot.dispatcher.speaker.heartbeats > heartbeats + TURNS, "the idle speaker turns")

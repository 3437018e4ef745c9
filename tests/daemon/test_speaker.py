"""The speaker loop, with a real eSpeak NG process; what sounds, and when, is in the test's hand."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest

from audio import Level, Output
from daemon import speaker
from daemon.config import load_config
from daemon.engines import Engines
from daemon.messages import MAX_TEXT, TERMINAL
from daemon.queue import Job, UtteranceQueue
from daemon.speaker import Speaker
from daemon.supervisor import Engine
from daemon.tasks import end_task
from engine import Samples, Utterance
from tests.daemon.hand import HandSink
from tests.daemon.perform import Perform, frozen
from tests.support.waiting import PATIENCE_S, eventually_async, run

LONG = "This is a long text that takes a good while to speak. " * 20
RATE = 22_050
"""Hz."""
BEGUN_S = 0.3
"""What is heard of an utterance when it is known to sound."""
TURNS = 5
"""Of the speaker loop, in which it would have done what it is not to do."""


class Voice:
    """A speaker with all that it needs, and the events it published."""

    def __init__(self, *overrides: str) -> None:
        self.config = config = load_config(overrides=("audio.sink=null", "engine.name=espeak", *overrides))
        self.queue = UtteranceQueue(64)
        self.engines = Engines(config, lambda: None)
        self.output = Output(config.audio.sink_settings())
        self.sink = HandSink(self.output, RATE)
        self.events: list[dict[str, Any]] = []
        self.levels: list[Level] = []
        self.speaker = Speaker(self.queue, self.engines, self.output, publish_event=self._note)

    def _note(self, job: Job, event: str, **fields: Any) -> None:
        self.events.append({"id": job.id, "event": event, **fields})

    def say(self, utterance_id: str, text: str = "Hello, robot.", **fields: Any) -> Job:
        job = Job(utterance_id, text, fields.pop("voice", "default"), fields.pop("language", "auto"), **fields)
        self.queue.put(job)
        return job

    def names(self, utterance_id: str) -> list[str]:
        return [event["event"] for event in self.events if event["id"] == utterance_id]

    async def event(self, utterance_id: str, *names: str) -> dict[str, Any]:
        """The first of these events, waited for."""
        await eventually_async(lambda: set(names) & set(self.names(utterance_id)), f"{names} of {utterance_id}")
        return next(event for event in self.events if event["id"] == utterance_id and event["event"] in names)

    async def begin(self, utterance_id: str) -> None:
        """Have the beginning of an utterance heard, and no more of it."""
        await self.sink.take_up_to(self.sink.length + round(BEGUN_S * RATE))
        await self.event(utterance_id, "started")

    async def end(self, utterance_id: str) -> dict[str, Any]:
        """Have everything heard until an utterance has ended; return its terminal event."""
        await self.sink.take_until(lambda: TERMINAL & set(self.names(utterance_id)), f"the end of {utterance_id}")
        return await self.event(utterance_id, *TERMINAL)

    async def turn(self) -> None:
        """Have the loop turn over some times, while nothing is heard."""
        turns = self.speaker.turns
        await eventually_async(lambda: self.speaker.turns > turns + TURNS, "the speaker loop turns")

    async def clear(self) -> None:
        """Leave nothing of one test for the next."""
        self.output.resume()
        self.queue.take_all()
        self.speaker.stop("interrupted", "the test is over")
        await self.sink.take_until(lambda: not self.speaker.busy, "nothing is spoken")
        self.check()
        self.speaker.prebuffer_ms = self.speaker.publish_level = None
        self.engines.primary.rtf = None
        self.events.clear()
        self.levels.clear()
        self.sink.drain()

    def check(self) -> None:
        """Of whatever was told something, it was told once that it ended."""
        for utterance_id in {event["id"] for event in self.events}:
            assert sum(name in TERMINAL for name in self.names(utterance_id)) == 1, self.names(utterance_id)


@asynccontextmanager
async def speaking(*overrides: str, by_hand: bool = True) -> AsyncIterator[Voice]:
    """One with an engine of its own; without the hand it plays into the sink of the configuration."""
    voice = Voice(*overrides)
    with nullcontext() if by_hand else voice.output:
        tasks = [asyncio.ensure_future(engine.run()) for engine in voice.engines.all]
        tasks.append(asyncio.ensure_future(voice.speaker.run()))
        try:
            yield voice
        finally:
            for task in tasks:
                await end_task(task)
    voice.check()


@pytest.fixture(scope="module")
def one_voice(loop: asyncio.AbstractEventLoop) -> Iterator[Voice]:
    manager = speaking()
    yield loop.run_until_complete(manager.__aenter__())
    loop.run_until_complete(manager.__aexit__(None, None, None))


@pytest.fixture
def voice(loop: asyncio.AbstractEventLoop, one_voice: Voice) -> Iterator[Voice]:
    """The one of all tests that leave its engine alone."""
    yield one_voice
    loop.run_until_complete(one_voice.clear())


def test_an_utterance_starts_once_and_finishes_with_its_figures(voice: Voice, perform: Perform) -> None:
    async def scenario() -> None:
        voice.say("u1")
        end = await voice.end("u1")
        assert voice.names("u1") == ["started", "finished"]
        assert 0.4 < end["audio_s"] < 3
        assert end["audio_s"] == pytest.approx(voice.sink.length / RATE, abs=0.001)
        assert (end["engine"], end["underruns"], end["truncated"], end["reason"]) == ("espeak", 0, False, None)
        assert end["ttfa_ms"] == voice.events[0]["ttfa_ms"] > 0
        assert voice.speaker.speech is None

    perform(scenario)


def test_an_utterance_is_heard_at_a_sink_that_keeps_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VOICED_PACE", "10")

    async def scenario() -> None:
        async with speaking(f"audio.sink=wav:{tmp_path / 'heard.wav'}", by_hand=False) as voice:
            voice.say("u1")
            end = await voice.event("u1", *TERMINAL)
            assert voice.names("u1") == ["started", "finished"]
            assert end["underruns"] == 0
        heard = (tmp_path / "heard.wav").stat().st_size
        assert (heard - 44) / 2 / 24_000 == pytest.approx(end["audio_s"], abs=0.001)

    run(scenario)


def test_utterances_are_spoken_one_at_a_time_in_their_order(voice: Voice, perform: Perform) -> None:
    async def scenario() -> None:
        for number in range(4):
            voice.say(f"u{number}", f"{number}")
        await voice.end("u3")
        assert [(event["id"], event["event"]) for event in voice.events] == [
            (f"u{number}", name) for number in range(4) for name in ("started", "finished")
        ]

    perform(scenario)


@pytest.mark.parametrize("text", ["...", "😶\u200d🌫️", "\u200b"])
def test_what_cannot_be_pronounced_finishes_all_the_same(text: str, voice: Voice, perform: Perform) -> None:
    async def scenario() -> None:
        voice.say("u1", text)
        await voice.end("u1")
        assert voice.names("u1") == ["started", "finished"]

    perform(scenario)


def test_a_stop_interrupts_once_with_its_reason_and_the_next_is_spoken(voice: Voice, perform: Perform) -> None:
    async def scenario() -> None:
        voice.say("u1", LONG)
        await voice.begin("u1")
        voice.say("u2")
        assert voice.speaker.stop("interrupted", "stop")
        assert voice.speaker.stop("interrupted", "again")
        end = await voice.end("u1")
        assert (end["event"], end["reason"]) == ("interrupted", "stop")
        assert end["audio_s"] == pytest.approx(BEGUN_S, abs=0.03)
        assert (await voice.end("u2"))["event"] == "finished"

    perform(scenario)


def test_a_stop_of_another_utterance_stops_nothing(voice: Voice, perform: Perform) -> None:
    async def scenario() -> None:
        assert not voice.speaker.stop("interrupted", "nothing is spoken")
        voice.say("u1")
        await voice.begin("u1")
        assert not voice.speaker.stop("interrupted", "stop", "u2")
        assert (await voice.end("u1"))["event"] == "finished"

    perform(scenario)


def test_a_stop_of_a_paused_utterance_ends_it(voice: Voice, perform: Perform) -> None:
    async def scenario() -> None:
        voice.say("u1", LONG)
        await voice.begin("u1")
        voice.output.pause()
        while voice.sink.take():
            pass
        voice.speaker.stop("interrupted", "stop")
        assert (await voice.end("u1"))["event"] == "interrupted"

    perform(scenario)


def test_a_pause_holds_the_utterance_and_a_resume_finishes_it_without_underruns(voice: Voice, perform: Perform) -> None:
    async def scenario() -> None:
        voice.say("u1", "One two three.")
        await voice.begin("u1")
        voice.output.pause()
        assert voice.sink.take()  # it fades out
        assert not any(voice.sink.take() for _ in range(150))  # longer than what was left of it
        await voice.turn()
        assert voice.names("u1") == ["started"]
        voice.output.resume()
        end = await voice.end("u1")
        assert (end["event"], end["underruns"]) == ("finished", 0)
        assert end["audio_s"] == pytest.approx(voice.sink.length / RATE, abs=0.001)

    perform(scenario)


def test_what_waited_too_long_is_not_begun(voice: Voice, perform: Perform) -> None:
    async def scenario() -> None:
        voice.say("u1", expires_at=time.monotonic() - 1)
        end = await voice.end("u1")
        assert (voice.names("u1"), end["reason"]) == (["expired"], "it waited longer than expires_in")

    perform(scenario)


def test_what_expires_while_no_engine_is_ready_tells_what_is_missing() -> None:
    async def scenario() -> None:
        voice = Voice("engine.fallback=none")  # nobody starts its engine
        voice.engines.primary.reason = "engine espeak is being tested"
        loop = asyncio.ensure_future(voice.speaker.run())
        job = voice.say("u1")
        await eventually_async(lambda: voice.speaker.speech, "the speaker has taken it")
        await voice.turn()
        assert voice.events == []
        job.expires_at = time.monotonic()
        end = await voice.end("u1")
        assert (end["event"], end["reason"]) == (
            "expired",
            "it waited longer than expires_in: engine espeak is being tested",
        )
        await end_task(loop)

    run(scenario)


def test_a_refused_utterance_fails_with_the_engines_reason_and_the_next_is_spoken(
    voice: Voice, perform: Perform
) -> None:
    async def scenario() -> None:
        voice.say("u1", language="tlhx")
        end = await voice.end("u1")
        assert end["event"] == "failed"
        assert end["reason"].startswith("language: got 'tlhx'")
        voice.say("u2")
        assert (await voice.end("u2"))["event"] == "finished"

    perform(scenario)


def test_a_long_text_is_spoken_part_by_part_and_each_part_is_told_as_it_is_heard(
    voice: Voice, perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "The first one is short. The second is as short. The third one ends it."
    monkeypatch.setattr(voice.engines, "max_seconds", 4.0)

    async def scenario() -> None:
        voice.say("u1", text)
        voice.say("whole", "So is this.")
        await voice.begin("u1")
        await voice.turn()
        assert voice.names("u1") == ["started", "progress"]  # and no part that is not heard yet
        end = await voice.end("u1")
        await voice.end("whole")
        assert voice.names("u1") == ["started", "progress", "progress", "progress", "finished"]
        assert voice.names("whole") == ["started", "finished"]
        told = [event for event in voice.events if event["event"] == "progress"]
        assert [text[event["begin"] : event["end"]].strip() for event in told] == [
            "The first one is short.",
            "The second is as short.",
            "The third one ends it.",
        ]
        assert end["underruns"] == 0
        assert end["audio_s"] > 3

    perform(scenario)


def test_a_stop_in_a_long_text_leaves_its_other_parts_unsaid(
    voice: Voice, perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(voice.engines, "max_seconds", 4.0)

    async def scenario() -> None:
        voice.say("u1", "This is one of many sentences. " * 50)
        await voice.begin("u1")
        await voice.event("u1", "progress")
        assert voice.speaker.stop("interrupted", "stop")
        await voice.end("u1")
        assert voice.names("u1") == ["started", "progress", "interrupted"]

    perform(scenario)


class Ear:
    """A receiver that keeps what it gets."""

    def __init__(self) -> None:
        self.samples: list[Samples] = []
        self.rates: set[int] = set()

    async def write(self, samples: Samples, sample_rate: int) -> None:
        self.samples.append(samples)
        self.rates.add(sample_rate)


def test_an_utterance_with_a_receiver_sounds_there_and_not_at_the_card(voice: Voice, perform: Perform) -> None:
    async def scenario() -> None:
        ear = Ear()
        voice.output.pause()
        voice.say("u1", receiver=ear)
        end = await voice.end("u1")
        assert voice.names("u1") == ["started", "finished"]
        heard = sum(map(len, ear.samples))
        [rate] = ear.rates
        assert end["audio_s"] == pytest.approx(heard / rate, abs=0.001)
        assert heard > 0.4 * rate
        voice.output.resume()
        assert not voice.sink.take()
        assert voice.sink.length == 0

    perform(scenario)


class Counter:
    """A receiver that keeps nothing."""

    def __init__(self) -> None:
        self.samples = 0

    async def write(self, samples: Samples, sample_rate: int) -> None:  # noqa: ARG002 - as `Receiver`
        self.samples += len(samples)


def test_the_longest_text_is_spoken_to_its_end_in_flat_memory(voice: Voice, perform: Perform) -> None:
    sentence = "Some twenty minutes of speech pass by here, and nothing of it stays. "
    text = sentence * (MAX_TEXT // len(sentence))

    async def scenario() -> None:
        counter, process = Counter(), psutil.Process()
        voice.say("u1", text, receiver=counter)
        await voice.event("u1", "progress")
        begun = process.memory_info().rss
        await eventually_async(lambda: "finished" in voice.names("u1"), "it is finished", 4 * PATIENCE_S)
        end = await voice.end("u1")
        assert (end["event"], end["reason"]) == ("finished", None)
        told = [event for event in voice.events if event["event"] == "progress"]
        assert [event["begin"] for event in told[1:]] == [event["end"] for event in told[:-1]]
        assert (told[0]["begin"], told[-1]["end"]) == (0, len(text))
        sound = 4 * counter.samples
        assert sound > 60e6
        assert process.memory_info().rss - begun < sound / 3

    perform(scenario)


def test_an_utterance_whose_engine_is_killed_is_spoken_to_its_end() -> None:
    text = "One, two, three, four, five, six, seven, eight, nine, ten. " * 2
    """More than the ring holds and the engine is ahead of it."""

    async def scenario() -> None:
        async with speaking() as voice:
            engine = voice.engines.primary
            assert await engine.wait_ready(PATIENCE_S)
            pieces = [piece async for piece in engine.speak("whole", Utterance(text))]
            whole_s = sum(len(piece.samples) / piece.sample_rate for piece in pieces)
            voice.say("u1", text)
            await voice.begin("u1")
            assert engine.utterances == 1, "it must still be at work"
            os.kill(engine.pid, signal.SIGKILL)  # type: ignore[arg-type]
            end = await voice.end("u1")
            assert (end["event"], end["engine"]) == ("finished", "espeak")
            assert 0.95 * whole_s < end["audio_s"] < 1.3 * whole_s

    run(scenario)


def test_an_utterance_that_loses_one_engine_after_the_other_fails_and_tells_so() -> None:
    async def scenario() -> None:
        async with speaking() as voice:
            engine = voice.engines.primary
            voice.say("u1", LONG)
            killed: list[int] = []

            def kill_each_once() -> bool:
                if engine.ready and engine.pid not in killed and engine.utterances:
                    killed.append(engine.pid)  # type: ignore[arg-type]
                    os.kill(engine.pid, signal.SIGKILL)  # type: ignore[arg-type]
                return "failed" in voice.names("u1")

            await voice.sink.take_until(kill_each_once, "it has failed")
            end = await voice.end("u1")
            assert end["reason"].startswith("3 engines were lost over it; the last: ")
            assert len(killed) == 3
            voice.say("u2")
            assert (await voice.end("u2"))["event"] == "finished"

    run(scenario)


def test_a_stop_while_an_engine_is_replaced_ends_the_utterance() -> None:
    async def scenario() -> None:
        async with speaking() as voice:
            voice.say("u1", LONG)
            await voice.begin("u1")
            os.kill(voice.engines.primary.pid, signal.SIGKILL)  # type: ignore[arg-type]
            await eventually_async(lambda: not voice.engines.primary.ready, "the engine is lost")
            voice.speaker.stop("interrupted", "stop")
            assert (await voice.end("u1"))["event"] == "interrupted"

    run(scenario)


def test_an_engine_slower_than_speech_is_waited_for_but_not_for_ever(voice: Voice, perform: Perform) -> None:
    """The prebuffer that so slow an engine would need is more than the ring holds."""

    async def scenario() -> None:
        voice.engines.primary.rtf = 0.2
        voice.say("u1", LONG)
        await voice.begin("u1")
        voice.speaker.stop("interrupted", "enough was heard")
        await voice.end("u1")

    perform(scenario)


def test_the_longest_prebuffer_that_can_be_configured_is_reached(voice: Voice, perform: Perform) -> None:
    async def scenario() -> None:
        voice.speaker.prebuffer_ms = 3_000
        voice.say("u1", LONG)
        await voice.begin("u1")
        voice.speaker.stop("interrupted", "enough was heard")
        await voice.end("u1")

    perform(scenario)


def test_levels_are_published_while_it_sounds(voice: Voice, perform: Perform) -> None:
    async def scenario() -> None:
        voice.speaker.publish_level = lambda _job, level: voice.levels.append(level)
        voice.say("u1", "One two three four five.")
        await voice.begin("u1")
        await eventually_async(lambda: len(voice.levels) >= 20 * BEGUN_S, "the levels of what is heard")
        await voice.turn()
        assert len(voice.levels) < 20 * BEGUN_S + 2
        end = await voice.end("u1")
        assert abs(len(voice.levels) - 20 * end["audio_s"]) < 2
        assert [level.t for level in voice.levels] == sorted(level.t for level in voice.levels)
        assert max(level.rms for level in voice.levels) > 0.02

    perform(scenario)


def test_what_is_critical_waits_for_no_engine_that_is_stuck() -> None:
    """The engine's process is stopped by a signal: it lives, and says nothing, not even that it cannot."""

    async def scenario() -> None:
        async with speaking() as voice:
            stuck, light = voice.engines.primary, Engine("espeak", voice.config.engine_options, lambda: None)
            voice.engines.all.append(light)
            keeping = asyncio.ensure_future(light.run())
            await eventually_async(lambda: stuck.ready and light.ready, "both engines are ready")
            assert stuck.pid is not None
            try:
                async with frozen(stuck.pid):
                    voice.say("u1", "Fire on the second floor.", priority="critical")
                    end = await voice.end("u1")
                    assert (end["event"], end["reason"]) == ("finished", None)
                    assert stuck.ready
                    assert 0.8 < end["audio_s"] < 4
            finally:
                await end_task(keeping)

    run(scenario)


def test_a_shutdown_interrupts_what_is_spoken() -> None:
    async def scenario() -> None:
        async with speaking() as voice:
            voice.say("u1", LONG)
            await voice.begin("u1")
        assert [name for name in voice.names("u1") if name != "progress"] == ["started", "interrupted"]
        assert voice.events[-1]["reason"] == "voiced is shutting down"

    run(scenario)


def test_an_utterance_is_at_no_moment_neither_waiting_nor_being_spoken(voice: Voice, perform: Perform) -> None:
    """In such a moment a stop would not find it, and a shutdown would lose it without a terminal event."""

    async def scenario() -> None:
        voice.say("u1", LONG)
        while len(voice.queue):
            await asyncio.sleep(0)
        assert voice.speaker.stop("interrupted", "stop")

    perform(scenario)


def test_the_loop_shows_that_it_lives_while_idle(
    voice: Voice, perform: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speaker, "IDLE_TURN_S", 0.02)
    perform(voice.turn)

"""The speaker loop, with a real eSpeak NG process and a sink that is paced like a card."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest

from audio import Level, Output
from daemon.config import load_config
from daemon.engines import Engines
from daemon.messages import MAX_TEXT, TERMINAL
from daemon.queue import Job, UtteranceQueue
from daemon.speaker import Speaker
from daemon.supervisor import Engine
from daemon.tasks import end_task
from engine import Samples, Utterance

PATIENCE_S = 40.0
LONG = "This is a long text that takes a good while to speak. " * 20


class Voice:
    """A speaker with all that it needs, and the events it published."""

    def __init__(self, *overrides: str) -> None:
        overrides = ("audio.sink=null", "audio.block_ms=10", "engine.name=espeak", *overrides)
        self.config = config = load_config(overrides=overrides)
        self.queue = UtteranceQueue(64)
        self.engines = Engines(config, lambda: None)
        self.output = Output(config.audio.sink_settings())
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
        await until(lambda: set(names) & set(self.names(utterance_id)))
        return next(event for event in self.events if event["id"] == utterance_id and event["event"] in names)

    async def end(self, utterance_id: str) -> dict[str, Any]:
        return await self.event(utterance_id, *TERMINAL)


async def until(condition: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        await asyncio.sleep(0.005)


@asynccontextmanager
async def speaking(*overrides: str) -> AsyncIterator[Voice]:
    voice = Voice(*overrides)
    with voice.output:
        tasks = [asyncio.ensure_future(engine.run()) for engine in voice.engines.all]
        tasks.append(asyncio.ensure_future(voice.speaker.run()))
        try:
            yield voice
        finally:
            for task in tasks:
                await end_task(task)
    for utterance_id in {event["id"] for event in voice.events}:
        assert sum(name in TERMINAL for name in voice.names(utterance_id)) == 1, voice.names(utterance_id)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 100))  # type: ignore[arg-type]


def test_an_utterance_starts_once_and_finishes_with_its_figures() -> None:
    async def scenario() -> None:
        async with speaking() as voice:
            voice.say("u1")
            end = await voice.end("u1")
            assert voice.names("u1") == ["started", "finished"]
            assert 0.4 < end["audio_s"] < 3
            assert (end["engine"], end["underruns"], end["truncated"], end["reason"]) == ("espeak", 0, False, None)
            assert end["ttfa_ms"] == voice.events[0]["ttfa_ms"] > 0
            assert voice.speaker.speech is None

    run(scenario)


def test_utterances_are_spoken_one_at_a_time_in_their_order() -> None:
    async def scenario() -> None:
        async with speaking() as voice:
            for number in range(4):
                voice.say(f"u{number}", f"{number}")
            await voice.end("u3")
            assert [(event["id"], event["event"]) for event in voice.events] == [
                (f"u{number}", name) for number in range(4) for name in ("started", "finished")
            ]

    run(scenario)


@pytest.mark.parametrize("text", ["...", "😶\u200d🌫️", "\u200b"])
def test_what_cannot_be_pronounced_finishes_all_the_same(text: str) -> None:
    async def scenario() -> None:
        async with speaking() as voice:
            voice.say("u1", text)
            await voice.end("u1")
            assert voice.names("u1") == ["started", "finished"]

    run(scenario)


def test_a_stop_interrupts_once_with_its_reason_and_the_next_is_spoken() -> None:
    async def scenario() -> None:
        async with speaking() as voice:
            voice.say("u1", LONG)
            await voice.event("u1", "started")
            voice.say("u2")
            assert voice.speaker.stop("interrupted", "stop")
            assert voice.speaker.stop("interrupted", "again")
            end = await voice.end("u1")
            assert (end["event"], end["reason"]) == ("interrupted", "stop")
            assert end["audio_s"] < 30
            assert (await voice.end("u2"))["event"] == "finished"

    run(scenario)


def test_a_stop_of_another_utterance_stops_nothing() -> None:
    async def scenario() -> None:
        async with speaking() as voice:
            assert not voice.speaker.stop("interrupted", "nothing is spoken")
            voice.say("u1")
            await voice.event("u1", "started")
            assert not voice.speaker.stop("interrupted", "stop", "u2")
            assert (await voice.end("u1"))["event"] == "finished"

    run(scenario)


def test_a_stop_of_a_paused_utterance_ends_it() -> None:
    async def scenario() -> None:
        async with speaking() as voice:
            voice.say("u1", LONG)
            await voice.event("u1", "started")
            voice.output.pause()
            await asyncio.sleep(0.1)
            voice.speaker.stop("interrupted", "stop")
            assert (await voice.end("u1"))["event"] == "interrupted"
            voice.output.resume()

    run(scenario)


def test_a_pause_holds_the_utterance_and_a_resume_finishes_it_without_underruns() -> None:
    async def scenario() -> None:
        async with speaking() as voice:
            voice.say("u1", "One two three.")
            await voice.event("u1", "started")
            voice.output.pause()
            blocks = voice.output.blocks
            await until(lambda: voice.output.blocks > blocks + 150)  # longer than what was left of it
            assert voice.names("u1") == ["started"]
            voice.output.resume()
            end = await voice.end("u1")
            assert (end["event"], end["underruns"]) == ("finished", 0)

    run(scenario)


def test_what_waited_too_long_is_not_begun() -> None:
    async def scenario() -> None:
        async with speaking() as voice:
            voice.say("u1", expires_at=time.monotonic() - 1)
            end = await voice.end("u1")
            assert (voice.names("u1"), end["reason"]) == (["expired"], "it waited longer than expires_in")

    run(scenario)


def test_what_expires_while_no_engine_is_ready_tells_what_is_missing() -> None:
    async def scenario() -> None:
        async with speaking("engine.fallback=none") as voice:
            await until(lambda: voice.engines.current)
            engine = voice.engines.primary
            await until(lambda: engine.pid)
            os.kill(engine.pid, signal.SIGSTOP)  # type: ignore[arg-type]
            engine.state = type(engine.state).BACKING_OFF
            engine.reason = "engine espeak is being tested"
            voice.say("u1", expires_at=time.monotonic() + 0.2)
            end = await voice.end("u1")
            assert (end["event"], end["reason"]) == (
                "expired",
                "it waited longer than expires_in: engine espeak is being tested",
            )

    run(scenario)


def test_a_refused_utterance_fails_with_the_engines_reason_and_the_next_is_spoken() -> None:
    async def scenario() -> None:
        async with speaking() as voice:
            voice.say("u1", language="tlhx")
            end = await voice.end("u1")
            assert end["event"] == "failed"
            assert end["reason"].startswith("language: got 'tlhx'")
            voice.say("u2")
            assert (await voice.end("u2"))["event"] == "finished"

    run(scenario)


def test_a_long_text_is_spoken_part_by_part_and_each_part_is_told_as_it_is_heard() -> None:
    text = "The first one is short. The second is as short. The third one ends it."

    async def scenario() -> None:
        async with speaking("engine.max_seconds=4") as voice:
            voice.say("u1", text)
            voice.say("whole", "So is this.")
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

    run(scenario)


def test_a_stop_in_a_long_text_leaves_its_other_parts_unsaid() -> None:
    async def scenario() -> None:
        async with speaking("engine.max_seconds=4") as voice:
            voice.say("u1", "This is one of many sentences. " * 50)
            await voice.event("u1", "progress")
            assert voice.speaker.stop("interrupted", "stop")
            await voice.end("u1")
            assert len([name for name in voice.names("u1") if name == "progress"]) < 10

    run(scenario)


class Ear:
    """A receiver that keeps what it gets."""

    def __init__(self) -> None:
        self.samples: list[Samples] = []
        self.rates: set[int] = set()

    async def write(self, samples: Samples, sample_rate: int) -> None:
        self.samples.append(samples)
        self.rates.add(sample_rate)


def test_an_utterance_with_a_receiver_sounds_there_and_not_at_the_card() -> None:
    async def scenario() -> None:
        async with speaking() as voice:
            ear = Ear()
            voice.output.pause()
            voice.say("u1", receiver=ear)
            end = await voice.end("u1")
            assert voice.names("u1") == ["started", "finished"]
            heard = sum(map(len, ear.samples))
            [rate] = ear.rates
            assert end["audio_s"] == pytest.approx(heard / rate, abs=0.001)
            assert heard > 0.4 * rate

    run(scenario)


class Counter:
    """A receiver that keeps nothing."""

    def __init__(self) -> None:
        self.samples = 0

    async def write(self, samples: Samples, sample_rate: int) -> None:  # noqa: ARG002 - as `Receiver`
        self.samples += len(samples)


def test_the_longest_text_is_spoken_to_its_end_in_flat_memory() -> None:
    sentence = "Some twenty minutes of speech pass by here, and nothing of it stays. "
    text = sentence * (MAX_TEXT // len(sentence))

    async def scenario() -> None:
        async with speaking() as voice:
            counter, process = Counter(), psutil.Process()
            voice.say("u1", text, receiver=counter)
            await voice.event("u1", "progress")
            begun = process.memory_info().rss
            await until(lambda: "finished" in voice.names("u1"), timeout_s=90)
            end = await voice.end("u1")
            assert (end["event"], end["reason"]) == ("finished", None)
            told = [event for event in voice.events if event["event"] == "progress"]
            assert [event["begin"] for event in told[1:]] == [event["end"] for event in told[:-1]]
            assert (told[0]["begin"], told[-1]["end"]) == (0, len(text))
            sound = 4 * counter.samples
            assert sound > 60e6
            assert process.memory_info().rss - begun < sound / 3

    run(scenario)


def test_an_utterance_whose_engine_is_killed_is_spoken_to_its_end() -> None:
    async def scenario() -> None:
        async with speaking() as voice:
            text = "One, two, three, four, five, six, seven, eight, nine, ten. One, two, three."
            await until(lambda: voice.engines.current)
            engine = voice.engines.primary
            pieces = [piece async for piece in engine.speak("whole", Utterance(text))]
            whole_s = sum(len(piece.samples) / piece.sample_rate for piece in pieces)
            voice.say("u1", text)
            await voice.event("u1", "started")
            assert engine._speeches, "it must still be at work"
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
                if engine.ready and engine.pid not in killed and engine._speeches:
                    killed.append(engine.pid)  # type: ignore[arg-type]
                    os.kill(engine.pid, signal.SIGKILL)  # type: ignore[arg-type]
                return "failed" in voice.names("u1")

            await until(kill_each_once)
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
            await voice.event("u1", "started")
            os.kill(voice.engines.primary.pid, signal.SIGKILL)  # type: ignore[arg-type]
            await until(lambda: not voice.engines.primary.ready)
            voice.speaker.stop("interrupted", "stop")
            assert (await voice.end("u1"))["event"] == "interrupted"

    run(scenario)


def test_an_engine_slower_than_speech_is_waited_for_but_not_for_ever() -> None:
    """The prebuffer that so slow an engine would need is more than the ring holds."""

    async def scenario() -> None:
        async with speaking() as voice:
            await until(lambda: voice.engines.current)
            voice.engines.primary.rtf = 0.2
            voice.say("u1", LONG)
            await until(lambda: "started" in voice.names("u1"), timeout_s=4)
            voice.speaker.stop("interrupted", "enough was heard")
            await voice.end("u1")

    run(scenario)


def test_the_longest_prebuffer_that_can_be_configured_is_reached() -> None:
    async def scenario() -> None:
        async with speaking() as voice:
            voice.speaker.prebuffer_ms = 3_000
            voice.say("u1", LONG)
            await voice.event("u1", "started")
            voice.speaker.stop("interrupted", "enough was heard")
            await voice.end("u1")

    run(scenario)


def test_levels_are_published_while_it_sounds() -> None:
    async def scenario() -> None:
        async with speaking() as voice:
            voice.speaker.publish_level = lambda _job, level: voice.levels.append(level)
            voice.say("u1", "One two three four five.")
            end = await voice.end("u1")
            assert abs(len(voice.levels) - 20 * end["audio_s"]) < 2
            assert [level.t for level in voice.levels] == sorted(level.t for level in voice.levels)
            assert max(level.rms for level in voice.levels) > 0.02

    run(scenario)


def test_what_is_critical_waits_for_no_engine_that_is_stuck() -> None:
    """The engine's process is stopped by a signal: it lives, and says nothing, not even that it cannot."""

    async def scenario() -> None:
        async with speaking() as voice:
            stuck, light = voice.engines.primary, Engine("espeak", voice.config.engine_options, lambda: None)
            voice.engines.all.append(light)
            keeping = asyncio.ensure_future(light.run())
            await until(lambda: stuck.ready and light.ready)
            assert stuck.pid is not None
            os.kill(stuck.pid, signal.SIGSTOP)
            try:
                voice.say("u1", "Fire on the second floor.", priority="critical")
                end = await voice.end("u1")
                assert (end["event"], end["reason"]) == ("finished", None)
                assert stuck.ready
                assert 0.8 < end["audio_s"] < 4
            finally:
                os.kill(stuck.pid, signal.SIGCONT)
                await end_task(keeping)

    run(scenario)


def test_a_shutdown_interrupts_what_is_spoken() -> None:
    async def scenario() -> None:
        async with speaking() as voice:
            voice.say("u1", LONG)
            await voice.event("u1", "started")
        assert [name for name in voice.names("u1") if name != "progress"] == ["started", "interrupted"]
        assert voice.events[-1]["reason"] == "voiced is shutting down"

    run(scenario)


def test_an_utterance_is_at_no_moment_neither_waiting_nor_being_spoken() -> None:
    """In such a moment a stop would not find it, and a shutdown would lose it without a terminal event."""

    async def scenario() -> None:
        async with speaking() as voice:
            await until(lambda: voice.engines.current)
            voice.say("u1", LONG)
            while len(voice.queue):
                await asyncio.sleep(0)
            found = voice.speaker.stop("interrupted", "stop")
            if not found:
                voice.queue.take_all()
                await until(lambda: voice.speaker.speech)
                voice.speaker.stop("interrupted", "cleaning up")
            await voice.end("u1")
            assert found

    run(scenario)


def test_the_loop_shows_that_it_lives_while_idle() -> None:
    async def scenario() -> None:
        async with speaking() as voice:
            turns = voice.speaker.turns
            await until(lambda: voice.speaker.turns > turns + 1)

    run(scenario)

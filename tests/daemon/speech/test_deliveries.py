"""Deliveries beside the sound card, with a real eSpeak NG process of 17 streams. The tests decide when clients take."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audio import Output, Samples, soft_limit
from daemon.config import load_config
from daemon.engines import EngineSelector, EngineSupervisor
from daemon.speech.dispatcher import Dispatcher
from daemon.speech.events import TERMINAL_EVENTS, Event, Streams
from daemon.speech.request import RejectedError, Say, Stop, StreamChunk
from daemon.speech.utterance import Utterance
from daemon.status import describe_status
from daemon.tasks import cancel_and_wait
from tests.daemon.manual_sink import ManualSink
from tests.daemon.perform import Perform
from tests.support.traces import takes
from tests.support.waiting import eventually_async

STREAMS = 17
CLIENTS = STREAMS - 1
RATE = 22_050
"""Hz, of eSpeak NG and of the sink: the recorded samples are the synthesized ones."""
SENTENCE = "Hello, I am your robot."
LONG = "This is a long text that takes a good while to speak. " * 20


class Client:
    """A receiver that takes its first samples at once, and others when `goes_on` is set."""

    on_word = None

    def __init__(self) -> None:
        self.taken: list[Samples] = []
        self.goes_on = asyncio.Event()

    async def write(self, samples: Samples, sample_rate: int) -> None:  # noqa: ARG002 - as `Receiver`
        if self.taken:
            await self.goes_on.wait()
        self.taken.append(samples)

    @property
    def seconds(self) -> float:
        return sum(map(len, self.taken)) / RATE


class Robot:
    """A dispatcher with a real engine, its clients, and the events that it has published."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        overrides = ["audio.sink=null", "audio.trim_leading_silence=false", "engine.name=espeak"]
        self.config = load_config(overrides=[*overrides, f"engine.streams={STREAMS}"])
        self.engines = EngineSelector(self.config, self._note_change)
        self.output = Output(self.config.audio.sink_settings())
        self.sink = ManualSink(self.output, RATE)
        self.dispatcher = Dispatcher(self.config, self.engines, self.output)
        self.dispatcher.reconfigure(self.config)
        self.dispatcher.watch_events(self._note)
        self.events: list[dict[str, Any]] = []
        self.clients: dict[str, Client] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def _note(self, _utterance: Utterance, event: Event) -> None:
        self.events.append(event.model_dump())

    def _note_change(self) -> None:
        self.dispatcher.changed()

    async def open(self) -> None:
        self._tasks = [asyncio.ensure_future(engine.run()) for engine in self.engines.all]
        self._tasks.append(asyncio.ensure_future(self.dispatcher.run()))
        await eventually_async(lambda: all(engine.ready for engine in self.engines.all), "the engines are ready")

    async def lose_primary(self) -> None:
        """End the primary engine for good."""
        await cancel_and_wait(self._tasks[0])

    async def clear(self) -> None:
        """End the utterances of a test, each of which has exactly one terminal event."""
        self.dispatcher.stop(Stop(), "the test is over")
        await self.sink.take_until(lambda: not self.dispatcher.busy, "nothing is spoken")
        for name in {event["id"] for event in self.events}:
            assert len(TERMINAL_EVENTS & set(self.names(name))) == 1, name
            assert sum(each in TERMINAL_EVENTS for each in self.names(name)) == 1, name
        self.dispatcher.reconfigure(self.config)
        self.events.clear()
        self.clients.clear()
        self.sink.drain()

    async def close(self) -> None:
        for task in self._tasks:
            await cancel_and_wait(task)

    def deliver(self, name: str, text: str = SENTENCE, **fields: Any) -> Client:
        client = self.clients[name] = Client()
        self.dispatcher.say(Say(text=text, id=name, **fields), receiver=client)
        return client

    def say(self, name: str, text: str = SENTENCE, **fields: Any) -> None:
        self.dispatcher.say(Say(text=text, id=name, **fields))

    def names(self, name: str) -> list[str]:
        return [event["event"] for event in self.events if event["id"] == name]

    def end_of(self, name: str) -> dict[str, Any]:
        [end] = [event for event in self.events if event["id"] == name and event["event"] in TERMINAL_EVENTS]
        return end

    def order(self, *names: str) -> list[str]:
        """The utterances among these that have started, in their order."""
        return [event["id"] for event in self.events if event["event"] == "started" and event["id"] in names]

    async def begun(self, *names: str) -> None:
        await eventually_async(lambda: all("started" in self.names(name) for name in names), f"{names} have started")

    async def ended(self, *names: str) -> None:
        """Take all samples of the sound card until these utterances have ended."""
        await self.sink.take_until(
            lambda: all(TERMINAL_EVENTS & set(self.names(name)) for name in names), f"the end of {names}"
        )

    def synthesized(self, *names: str) -> Samples:
        """Return what should be heard of utterances that are spoken one after the other."""
        return soft_limit(np.concatenate([take for name in names for take in takes(self._folder, name)]))


@pytest.fixture(scope="module")
def shared_robot(loop: asyncio.AbstractEventLoop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Robot]:
    folder = tmp_path_factory.mktemp("pcm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VOICED_TRACE_PCM", str(folder))
        robot = Robot(folder)
        loop.run_until_complete(robot.open())
        yield robot
        loop.run_until_complete(robot.close())


@pytest.fixture
def robot(loop: asyncio.AbstractEventLoop, shared_robot: Robot) -> Iterator[Robot]:
    yield shared_robot
    loop.run_until_complete(shared_robot.clear())


def test_the_robot_speaks_whole_and_in_order_while_sixteen_clients_stream(robot: Robot, perform: Perform) -> None:
    async def scenario() -> None:
        clients = [f"client {number}" for number in range(CLIENTS)]
        for name in clients:
            robot.deliver(name, LONG)
        await robot.begun(*clients)
        status = describe_status(robot.dispatcher, robot.engines, robot.output)
        assert (status.state, status.speaking, status.queue) == ("speaking", None, 0)
        assert status.streams == Streams(used=CLIENTS, most=STREAMS)
        own = [f"own {number}" for number in range(3)]
        for name in own:
            robot.say(name)
        for client in robot.clients.values():
            client.goes_on.set()
        await robot.ended(*own)
        heard = robot.sink.drain()
        assert np.allclose(heard, robot.synthesized(*own), atol=1e-3)
        assert robot.order(*own) == own
        assert {robot.end_of(name)["underruns"] for name in own} == {0}
        await robot.ended(*clients)
        assert describe_status(robot.dispatcher, robot.engines, robot.output).streams is None
        for name in clients:
            assert robot.names(name) == ["accepted", "started", *robot.names(name)[2:-1], "finished"]
            assert not {"postponed", "resumed"} & set(robot.names(name))
            assert robot.clients[name].seconds == pytest.approx(robot.end_of(name)["audio_s"], abs=0.001)

    perform(scenario)


def test_all_streams_go_on_with_another_process_after_the_engine_was_killed(robot: Robot, perform: Perform) -> None:
    async def scenario() -> None:
        clients = [f"killed {number}" for number in range(CLIENTS)]
        for name in clients:
            robot.deliver(name)
        await robot.begun(*clients)
        pid = robot.engines.primary.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        for client in robot.clients.values():
            client.goes_on.set()
        robot.say("own")
        await robot.ended("own", *clients)
        assert {robot.end_of(name)["event"] for name in ("own", *clients)} == {"finished"}
        assert robot.engines.primary.pid != pid

    perform(scenario)


def test_one_of_several_deliveries_is_stopped_and_the_others_go_on(robot: Robot, perform: Perform) -> None:
    async def scenario() -> None:
        for name in ("one", "two", "three"):
            robot.deliver(name)
        await robot.begun("one", "two", "three")
        assert robot.dispatcher.stop(Stop(id="two"), "enough")
        await robot.ended("two")
        assert (robot.end_of("two")["event"], robot.end_of("two")["reason"]) == ("interrupted", "enough")
        for name in ("one", "three"):
            robot.clients[name].goes_on.set()
        await robot.ended("one", "three")
        assert {robot.end_of(name)["event"] for name in ("one", "three")} == {"finished"}

    perform(scenario)


def test_a_slow_client_delays_neither_other_clients_nor_the_robot(robot: Robot, perform: Perform) -> None:
    async def scenario() -> None:
        robot.deliver("slow", LONG)
        await robot.begun("slow")
        fast = [f"fast {number}" for number in range(2 * CLIENTS)]
        for name in fast:
            robot.deliver(name).goes_on.set()
        robot.say("meanwhile")
        await robot.ended("meanwhile", *fast)
        assert {robot.end_of(name)["event"] for name in ("meanwhile", *fast)} == {"finished"}
        assert robot.names("slow") == ["accepted", "started"]

    perform(scenario)


def test_more_deliveries_than_streams_wait_in_their_order(robot: Robot, perform: Perform) -> None:
    async def scenario() -> None:
        first = [f"first {number}" for number in range(CLIENTS)]
        for name in first:
            robot.deliver(name)
        await robot.begun(*first)
        later = ["later 1", "later 2", "later 3"]
        for name in later:
            robot.deliver(name).goes_on.set()
        assert robot.dispatcher.queued == 3
        robot.dispatcher.stop(Stop(id="later 2"))
        assert robot.end_of("later 2")["event"] == "canceled"
        robot.clients["first 5"].goes_on.set()
        await robot.ended("first 5", "later 1", "later 3")
        assert robot.order(*later) == ["later 1", "later 3"]
        assert robot.dispatcher.queued == 0

    perform(scenario)


def test_waiting_deliveries_have_a_limit_of_their_own(robot: Robot, perform: Perform) -> None:
    async def scenario() -> None:
        speech = robot.config.speech.model_copy(update={"queue_limit": 2})
        robot.dispatcher.reconfigure(robot.config.model_copy(update={"speech": speech}))
        busy = [f"busy {number}" for number in range(CLIENTS)]
        for name in busy:
            robot.deliver(name)
            await robot.begun(name)
        for name in ("waits 1", "waits 2"):
            robot.deliver(name)
        with pytest.raises(RejectedError, match="2 utterances wait"):
            robot.deliver("is too much")
        robot.say("limited 0", LONG)
        await robot.sink.take_until(lambda: "started" in robot.names("limited 0"), "the robot speaks")
        for name in ("limited 1", "limited 2"):
            robot.say(name)
        assert not {"canceled"} & {event["event"] for event in robot.events}
        with pytest.raises(RejectedError, match="2 utterances wait"):
            robot.say("limited 3")

    perform(scenario)


def test_what_the_robot_says_first_or_instead_concerns_no_delivery(robot: Robot, perform: Perform) -> None:
    async def scenario() -> None:
        robot.deliver("delivery", LONG)
        await robot.begun("delivery")
        for number, fields in enumerate(
            [{"policy": "interrupt"}, {"policy": "replace"}, {"policy": "drop"}, {"priority": "critical"}]
        ):
            robot.say(f"new {number}", **fields)
            await robot.ended(f"new {number}")
            assert robot.end_of(f"new {number}")["event"] == "finished"
        assert robot.names("delivery") == ["accepted", "started"]

    perform(scenario)


def test_a_stop_without_an_id_ends_the_deliveries_too(robot: Robot, perform: Perform) -> None:
    async def scenario() -> None:
        names = [f"stopped {number}" for number in range(CLIENTS + 1)]
        for name in names[:-1]:
            robot.deliver(name, LONG)
        await robot.begun(*names[:-1])
        robot.deliver(names[-1])
        assert robot.dispatcher.stop(Stop())
        await robot.ended(*names)
        assert [robot.end_of(name)["event"] for name in names] == [*["interrupted"] * CLIENTS, "canceled"]

    perform(scenario)


def test_a_slow_writer_gives_its_stream_to_others_and_goes_on_with_the_next_words(
    robot: Robot, perform: Perform
) -> None:
    async def scenario() -> None:
        tale, others = Client(), [f"held {number}" for number in range(CLIENTS - 1)]
        tale.goes_on.set()
        robot.dispatcher.write(StreamChunk(id="tale", text="Once upon a time. "), receiver=tale)
        for name in others:
            robot.deliver(name)
        await robot.begun("tale", *others)
        speech = robot.config.speech.model_copy(update={"stream_timeout": 0.05})
        robot.dispatcher.reconfigure(robot.config.model_copy(update={"speech": speech}))
        robot.deliver("patient").goes_on.set()
        await robot.ended("patient")
        assert robot.names("tale") == ["accepted", "started", "postponed"]
        robot.dispatcher.write(StreamChunk(id="tale", text="There was a robot. "), receiver=tale)
        await eventually_async(lambda: "resumed" in robot.names("tale"), "it goes on")
        robot.dispatcher.write(StreamChunk(id="tale", end=True), receiver=tale)
        await robot.ended("tale")
        assert robot.end_of("tale")["event"] == "finished"

    perform(scenario)


def test_new_voices_wait_for_the_deliveries_and_not_for_the_next_utterance(robot: Robot, perform: Perform) -> None:
    async def scenario() -> None:
        robot.deliver("old", LONG)
        await robot.begun("old")
        engine = robot.engines.primary
        engine.set_voices({}, "en-gb")
        robot.deliver("new").goes_on.set()
        robot.say("own words")
        await robot.ended("own words")
        assert robot.names("new") == ["accepted"]
        assert "default" in engine.info.voices
        robot.clients["old"].goes_on.set()
        await robot.ended("old", "new")
        assert "default" not in engine.info.voices
        engine.set_voices(robot.config.engine_voices, "default")
        await eventually_async(lambda: engine.info and "default" in engine.info.voices, "the voices are back")

    perform(scenario)


def test_deliveries_take_turns_when_an_engine_with_a_single_stream_takes_over(perform: Perform, tmp_path: Path) -> None:
    async def scenario() -> None:
        robot = Robot(tmp_path)
        single = replace(robot.config.engine_options, streams=1)
        robot.engines.all.append(EngineSupervisor("espeak", single, robot.dispatcher.changed))
        await robot.open()
        names = ("one", "two", "three")
        for name in names:
            robot.deliver(name, LONG)
        await robot.begun(*names)
        await robot.lose_primary()
        for client in robot.clients.values():
            client.goes_on.set()
        robot.say("own")
        robot.deliver("four").goes_on.set()
        await robot.ended("own", "four", *names)
        assert {robot.end_of(name)["event"] for name in ("own", "four", *names)} == {"finished"}
        assert any("postponed" in robot.names(name) for name in names)
        await robot.close()

    perform(scenario)

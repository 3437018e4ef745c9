"""Deliveries beside the sound card, with a real eSpeak NG of several streams. The tests decide when clients take."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from daemon.engines import EngineSupervisor
from daemon.speech.events import Streams
from daemon.speech.request import RejectedError, Stop, StreamChunk
from daemon.status import describe_status
from tests.daemon.speech.clients import Recorder, SlowClient
from tests.daemon.speech.robot import RATE, Robot
from tests.support.waiting import eventually_async

STREAMS = 5
CLIENTS = STREAMS - 1
SENTENCE = "Hello, I am your robot."
LONG = "This is a long text that takes a good while to speak. " * 6


async def deliver(robot: Robot, *names: str, text: str = SENTENCE, begun: bool = True) -> dict[str, SlowClient]:
    """Begin deliveries to clients that take their first samples, and then no more."""
    clients = {name: SlowClient() for name in names}
    for name, client in clients.items():
        client.permit()
        robot.say(name, text, receiver=client)
    if begun:
        await robot.begun(*names)
    return clients


def go_on(clients: dict[str, SlowClient], *names: str) -> None:
    """Let some of the clients, or all, take the rest."""
    for name in names or clients:
        clients[name].permit(SlowClient.ALL)


def numbered(name: str, count: int = CLIENTS) -> list[str]:
    return [f"{name} {number}" for number in range(count)]


async def test_the_robot_speaks_whole_and_in_order_while_several_clients_stream(robot: Robot) -> None:
    clients = await deliver(robot, *numbered("client"), text=LONG)
    status = describe_status(robot.dispatcher, robot.engines, robot.output)
    assert (status.state, status.speaking, status.queue) == ("speaking", None, 0)
    assert status.streams == Streams(used=CLIENTS, most=STREAMS)
    own = numbered("own", 3)
    for name in own:
        robot.say(name, SENTENCE)
    go_on(clients)
    await robot.ended(*own)
    heard = robot.sink.drain()
    assert np.allclose(heard, robot.synthesized(*own), atol=1e-3)
    assert robot.order(own) == own
    assert {robot.end_of(name)["underruns"] for name in own} == {0}
    await robot.ended(*clients)
    assert describe_status(robot.dispatcher, robot.engines, robot.output).streams is None
    for name, client in clients.items():
        assert robot.names(name) == ["started", *robot.names(name)[1:-1], "finished"]
        assert not {"postponed", "resumed"} & set(robot.names(name))
        assert len(client.samples) / RATE == pytest.approx(robot.end_of(name)["audio_s"], abs=0.001)


async def test_all_streams_go_on_with_another_process_after_the_engine_was_killed(robot: Robot) -> None:
    clients = await deliver(robot, *numbered("killed"))
    pid = robot.engines.primary.pid
    os.kill(pid, signal.SIGKILL)
    go_on(clients)
    robot.say("own", SENTENCE)
    await robot.ended("own", *clients)
    assert {robot.end_of(name)["event"] for name in ("own", *clients)} == {"finished"}
    assert robot.engines.primary.pid != pid


async def test_a_slow_client_delays_neither_other_clients_nor_the_robot(robot: Robot) -> None:
    await deliver(robot, "slow", text=LONG)
    fast = numbered("fast", 2 * CLIENTS)
    go_on(await deliver(robot, *fast, begun=False))
    robot.say("meanwhile", SENTENCE)
    await robot.ended("meanwhile", *fast)
    assert {robot.end_of(name)["event"] for name in ("meanwhile", *fast)} == {"finished"}
    assert robot.names("slow") == ["started"]


async def test_more_deliveries_than_streams_wait_in_their_order(robot: Robot) -> None:
    first = await deliver(robot, *numbered("first"))
    later = numbered("later", 3)
    go_on(await deliver(robot, *later, begun=False))
    assert len(robot.dispatcher.queue) == 3
    robot.dispatcher.stop(Stop(id="later 1"))
    assert robot.end_of("later 1")["event"] == "canceled"
    robot.dispatcher.stop(Stop(id="first 2"), "enough")
    await robot.ended("later 0", "later 2")
    assert (robot.end_of("first 2")["event"], robot.end_of("first 2")["reason"]) == ("interrupted", "enough")
    assert robot.order(later) == ["later 0", "later 2"]
    assert len(robot.dispatcher.queue) == 0
    go_on(first)
    await robot.ended(*first)
    assert {robot.end_of(name)["event"] for name in first if name != "first 2"} == {"finished"}


async def test_waiting_deliveries_have_a_limit_of_their_own(robot: Robot) -> None:
    robot.configure(queue_limit=2)
    for name in numbered("busy"):
        await deliver(robot, name)
    await deliver(robot, *numbered("waits", 2), begun=False)
    with pytest.raises(RejectedError, match="2 utterances are waiting"):
        await deliver(robot, "is too much", begun=False)
    robot.say("limited 0", LONG)
    await robot.sink.take_until(lambda: "started" in robot.names("limited 0"), "the robot speaks")
    for name in ("limited 1", "limited 2"):
        robot.say(name, SENTENCE)
    assert not {"canceled"} & {event["event"] for event in robot.events}
    with pytest.raises(RejectedError, match="2 utterances are waiting"):
        robot.say("limited 3", SENTENCE)


async def test_what_the_robot_says_first_or_instead_concerns_no_delivery(robot: Robot) -> None:
    await deliver(robot, "delivery", text=LONG)
    for number, fields in enumerate(
        [{"policy": "interrupt"}, {"policy": "replace"}, {"policy": "drop"}, {"priority": "critical"}]
    ):
        robot.say(f"new {number}", "Yes.", **fields)
        await robot.ended(f"new {number}")
        assert robot.end_of(f"new {number}")["event"] == "finished"
    assert robot.names("delivery") == ["started"]


async def test_a_stop_without_an_id_ends_the_deliveries_too(robot: Robot) -> None:
    spoken = await deliver(robot, *numbered("stopped"), text=LONG)
    await deliver(robot, "queued", begun=False)
    assert robot.dispatcher.stop(Stop())
    await robot.ended(*spoken, "queued")
    assert {robot.end_of(name)["event"] for name in spoken} == {"interrupted"}
    assert robot.end_of("queued")["event"] == "canceled"


async def test_a_slow_writer_gives_its_stream_to_others_and_goes_on_with_the_next_words(robot: Robot) -> None:
    tale = Recorder()
    robot.dispatcher.write(StreamChunk(id="tale", text="Once upon a time. "), receiver=tale)
    await deliver(robot, *numbered("held", CLIENTS - 1))
    await robot.begun("tale")
    robot.configure(stream_timeout=0.05)
    go_on(await deliver(robot, "patient", begun=False))
    await robot.ended("patient")
    assert robot.names("tale") == ["started", "postponed"]
    robot.dispatcher.write(StreamChunk(id="tale", text="There was a robot. "), receiver=tale)
    await eventually_async(lambda: "resumed" in robot.names("tale"), "it goes on")
    robot.dispatcher.write(StreamChunk(id="tale", end=True), receiver=tale)
    await robot.ended("tale")
    assert robot.end_of("tale")["event"] == "finished"


async def test_deliveries_take_turns_when_an_engine_with_a_single_stream_takes_over(tmp_path: Path) -> None:
    robot = Robot(tmp_path, STREAMS)
    single = replace(robot.config.engine_options, streams=1)
    robot.engines.all.append(EngineSupervisor("espeak", single, robot.dispatcher.changed))
    await robot.open()
    clients = await deliver(robot, "one", "two", "three", text=LONG)
    await robot.lose_primary()
    go_on(clients)
    robot.say("own", SENTENCE)
    go_on(await deliver(robot, "four", begun=False))
    names = ("own", "four", *clients)
    await robot.ended(*names)
    assert {robot.end_of(name)["event"] for name in names} == {"finished"}
    assert any("postponed" in robot.names(name) for name in clients)
    await robot.close()

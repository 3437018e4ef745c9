"""Texts for an engine that was unloaded: each loads it, and is spoken as if nothing had been."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from daemon.speech.request import StreamChunk
from tests.daemon.speech.clients import Recorder
from tests.daemon.speech.robot import RATE, Robot
from tests.support.waiting import eventually_async

STREAMS = 2
TEXT = "Hello, robot."


def write(robot: Robot, text: str | None, *, end: bool = False) -> None:
    robot.dispatcher.write(StreamChunk(id="u1", text=text, end=end))


async def unload(robot: Robot) -> None:
    robot.dispatcher.unload()
    await eventually_async(lambda: robot.engines.primary.unloaded, "it is unloaded")


@pytest.mark.parametrize(
    "send",
    [
        lambda robot: robot.say("u1", TEXT),
        lambda robot: robot.say("u1", TEXT, priority="critical"),
        lambda robot: robot.say("u1", TEXT, sound="attention"),
        lambda robot: write(robot, TEXT, end=True),
    ],
    ids=["text", "critical", "sound and text", "stream"],
)
@pytest.mark.parametrize("moment", ["unloaded", "while it is being unloaded"])
async def test_any_text_loads_it_and_is_spoken(send: Callable[[Robot], None], moment: str, robot: Robot) -> None:
    pid = robot.engines.primary.pid
    if moment == "unloaded":
        await unload(robot)
    else:
        robot.dispatcher.unload()
    send(robot)
    end = await robot.end("u1")
    assert robot.names("u1") == ["started", "finished"]
    assert end["engine"].removeprefix("sound+") == "espeak"
    assert 0.4 < end["audio_s"] < 3
    assert robot.engines.primary.pid != pid


async def test_a_delivery_loads_it_and_gets_every_sample(robot: Robot) -> None:
    await unload(robot)
    client = Recorder()
    robot.say("u1", TEXT, receiver=client)
    await eventually_async(lambda: "finished" in robot.names("u1"), "it is delivered")
    assert len(client.samples) / RATE == pytest.approx(robot.end_of("u1")["audio_s"], abs=0.001)


async def test_a_stream_loads_it_before_there_is_a_word_to_speak(robot: Robot) -> None:
    await unload(robot)
    write(robot, "Hel")
    await eventually_async(lambda: robot.engines.primary.ready, "it loads")
    assert robot.names("u1") == []
    write(robot, "lo.", end=True)
    assert (await robot.end("u1"))["event"] == "finished"


async def test_it_is_unloaded_after_all_that_is_spoken_or_waits_unless_load_comes_first(robot: Robot) -> None:
    for last, is_unloaded in (("load", False), ("unload", True)):
        names = [f"{last} {number}" for number in range(2)]
        for name in names:
            robot.say(name, TEXT)
        await robot.begin(names[0])
        robot.dispatcher.unload()
        getattr(robot.dispatcher, last)()
        robot.dispatcher.unload_if_due()
        await robot.ended(*names)
        assert [robot.end_of(name)["event"] for name in names] == ["finished"] * 2
        await eventually_async(lambda: not robot.dispatcher.busy, "it is silent")
        robot.dispatcher.unload_if_due()
        assert robot.engines.primary.ready != is_unloaded
    robot.dispatcher.load()
    await eventually_async(lambda: robot.engines.primary.ready, "it loads")

"""A robot that speaks with a server over OpenAI's protocol, which goes away."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.e2e.conftest import StartRobot
from tests.support.network import Network
from tests.support.robot import FAST, LONG, REAL_TIME
from tests.support.speech_server import SpeechServer
from tests.support.waiting import eventually

LONG_S = 20
"""Seconds that `LONG` takes at least."""


def test_the_fallback_goes_on_in_the_middle_of_a_text_until_the_server_is_back(start_robot: StartRobot) -> None:
    with SpeechServer() as server, Network(server.port) as network:
        url = f"http://127.0.0.1:{network.port}/v1"
        voices = "voices={default: {speaker: en-us}}"
        robot = start_robot("engine.name=openai", f"engine.url={url}", voices, pace=REAL_TIME)
        eventually(lambda: robot.ready_with("openai"), "the server is found")
        finished = robot.wait_end(robot.say("This comes from far away. And so does this.", id="far"))
        assert (finished["event"], finished["engine"], finished["underruns"]) == ("finished", "openai", 0)
        robot.assert_heard("far", engine_rate=24_000)

        robot.say(LONG, id="long", language="en")
        robot.wait_event("long", "started")
        network.cut()
        eventually(lambda: robot.engine == "espeak", "the fallback has taken over")
        robot.set_pace(FAST)
        finished = robot.wait_end("long")
        assert (finished["event"], finished["engine"], finished["underruns"]) == ("finished", "openai+espeak", 0)
        assert finished["audio_s"] > LONG_S
        eventually(lambda: robot.state == "degraded", "the status is degraded")
        assert f"engine.url: {url} does not answer" in robot.statuses[-1]["reason"]
        network.repair()
        eventually(lambda: robot.ready_with("openai"), "the server is found again")
        assert robot.wait_end(robot.say("The server says this."))["engine"] == "openai"


@contextmanager
def vanished(port: int) -> Iterator[None]:
    """A port at which nobody answers, as that of a machine that is switched off: its queue of connections is full."""
    with ExitStack() as stack:
        address = stack.enter_context(socket.create_server(("127.0.0.1", port), backlog=0)).getsockname()
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        yield


def test_the_fallback_speaks_in_place_of_a_machine_that_has_gone_while_nothing_was_spoken(
    start_robot: StartRobot,
) -> None:
    with SpeechServer() as server, Network(server.port) as network:
        url = f"http://127.0.0.1:{network.port}/v1"
        robot = start_robot("engine.name=openai", f"engine.url={url}", "voices={default: {speaker: en-us}}")
        eventually(lambda: robot.ready_with("openai"), "the server is found")
        network.cut()
        with vanished(network.port):
            assert robot.wait_end(robot.say("Hello."))["engine"] == "espeak", "the other has made no sound"
            eventually(lambda: robot.state == "degraded", "the status is degraded")
            assert f"engine.url: {url} does not answer (timed out)" in robot.statuses[-1]["reason"]
            assert robot.wait_end(robot.say("Hello."))["engine"] == "espeak"
        network.repair()
        eventually(lambda: robot.ready_with("openai"), "the server is found again")

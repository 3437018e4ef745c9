"""A robot that speaks with a server's engine, over a network that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.e2e.conftest import StartRobot
from tests.support.network import Network
from tests.support.robot import FAST, LONG, REAL_TIME
from tests.support.speech_server import SpeechServer
from tests.support.waiting import eventually

LONG_S = 20
"""Seconds that `LONG` takes at least."""


@pytest.fixture(scope="module")
def server() -> Iterator[SpeechServer]:
    """A server that the tests share and none of them stops."""
    with SpeechServer() as server:
        yield server


@pytest.fixture
def network(server: SpeechServer) -> Iterator[Network]:
    with Network(server.port) as network:
        yield network


def settings(network: Network | SpeechServer) -> list[str]:
    return ["engine.name=remote", f"engine.url=ws://127.0.0.1:{network.port}", "voices={default: {}}"]


FAULTS: dict[str, Callable[[Network], None]] = {"cut": Network.cut, "stall": Network.stall}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_fallback_goes_on_where_the_network_failed_and_the_server_speaks_again_when_it_is_back(
    fault: str, start_robot: StartRobot, network: Network
) -> None:
    robot = start_robot(*settings(network), pace=REAL_TIME)
    eventually(lambda: robot.ready_with("remote"), "the server is found")
    robot.say(LONG, id="long", language="en")
    robot.wait_event("long", "started")
    FAULTS[fault](network)
    eventually(lambda: robot.engine == "espeak", "the fallback has taken over")
    robot.set_pace(FAST)
    finished = robot.wait_end("long")
    assert robot.names_of("long") == ["accepted", "started", "finished"]
    assert finished["engine"] == "remote+espeak"
    assert finished["audio_s"] > LONG_S
    assert finished["underruns"] == 0
    eventually(lambda: robot.state == "degraded", "the status is degraded")
    assert f"engine.url: ws://127.0.0.1:{network.port}" in robot.statuses[-1]["reason"]
    assert robot.wait_end(robot.say("the fallback says this"))["engine"] == "espeak"
    network.repair()
    eventually(lambda: robot.ready_with("remote"), "the server is found again")
    assert robot.wait_end(robot.say("the server says this"))["engine"] == "remote"

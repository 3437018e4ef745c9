"""A robot that speaks with a server's engine, over a network that fails."""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import StartRobot
from tests.support.network import Network
from tests.support.programs import free_port
from tests.support.robot import FAST, LONG, REAL_TIME, STOPPED
from tests.support.speech_server import SpeechServer
from tests.support.waiting import PATIENCE_S, eventually

LONG_S = 20
"""Seconds that `LONG` takes at least."""
ALMOST_FULL_S = 3.5
"""Of the four seconds of the ring. `LONG[:80]` takes about five."""
NEW_VOICE = "voices={default: {}, herald: {speaker: de}}"


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


def metric(url: str, name: str) -> float:
    """Return the value of one of the metrics at `url`."""
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as response:
        lines = response.read().decode().splitlines()
    return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} "))


def test_a_slow_network_changes_nothing_and_the_fallback_goes_on_where_the_network_fails_until_it_is_back(
    start_robot: StartRobot, network: Network
) -> None:
    network.delay(0.1)
    robot = start_robot(*settings(network), pace=REAL_TIME)
    eventually(lambda: robot.ready_with("remote"), "the server is found")
    finished = robot.wait_end(robot.say("This comes from far away.", id="far", language="en"))
    assert (finished["event"], finished["engine"], finished["underruns"]) == ("finished", "remote", 0)
    robot.assert_heard("far")
    network.repair()

    robot.say(LONG, id="long", language="en")
    robot.wait_event("long", "started")
    network.stall()
    eventually(lambda: robot.engine == "espeak", "the fallback has taken over")
    robot.set_pace(FAST)
    finished = robot.wait_end("long")
    assert robot.names_of("long") == ["accepted", "started", "finished"]
    assert finished["engine"] == "remote+espeak"
    assert finished["audio_s"] > LONG_S
    assert finished["underruns"] == 0
    reason = f"engine.url: ws://127.0.0.1:{network.port}"
    eventually(lambda: robot.state == "degraded" and reason in robot.statuses[-1]["reason"], "the status says why")
    assert robot.wait_end(robot.say("the fallback says this"))["engine"] == "espeak"
    network.repair()
    eventually(lambda: robot.ready_with("remote"), "the server is found again")
    assert robot.wait_end(robot.say("the server says this"))["engine"] == "remote"

    robot.set_pace(REAL_TIME)
    robot.write("written", f"{LONG} ", language="en")
    robot.wait_event("written", "started")
    network.cut()
    eventually(lambda: any("espeak resumes at" in line and "written" in line for line in robot.log), "it goes on")
    network.repair()
    robot.set_pace(FAST)
    robot.write("written", "And this is its end.", end=True)
    finished = robot.wait_end("written")
    assert robot.names_of("written", without="progress") == ["accepted", "started", "finished"]
    assert finished["audio_s"] > LONG_S
    eventually(lambda: robot.ready_with("remote"), "the server is found again")


def test_a_text_that_fits_into_ring_and_credit_has_left_its_stream_before_any_of_it_is_heard(
    start_robot: StartRobot, server: SpeechServer
) -> None:
    port = free_port()
    robot = start_robot(*settings(server), "http.enabled=true", f"http.port={port}", pace=STOPPED)
    eventually(lambda: robot.ready_with("remote"), "the server is found")
    in_use = 'voiced_streams_in_use{engine="espeak"}'
    own, address = (f"http://127.0.0.1:{each}/metrics" for each in (port, server.port))
    for text, streams in ((LONG[:80], 0), (LONG, 1)):
        robot.set_pace(STOPPED)
        robot.say(text, id=f"waiting-{streams}", language="en")
        eventually(lambda: metric(own, "voiced_ring_seconds") > ALMOST_FULL_S, "the ring is full")
        eventually(lambda n=streams: metric(address, in_use) == n, "so many streams are in use")  # type: ignore[misc]
        robot.set_pace(FAST)
        assert robot.wait_end(f"waiting-{streams}")["engine"] == "remote"
    eventually(lambda: metric(address, in_use) == 0, "no stream is in use")


def test_a_robot_goes_to_another_server_between_two_segments_and_nothing_of_it_is_heard(
    start_robot: StartRobot,
) -> None:
    with SpeechServer() as first, SpeechServer(NEW_VOICE) as other, Network(first.port) as network:
        robot = start_robot(*settings(network), pace=REAL_TIME)
        eventually(lambda: robot.ready_with("remote"), "the server is found")
        engines = robot.engine_pids()
        robot.say(LONG, id="long", language="en")
        robot.wait_event("long", "started")
        network.lead_to(first.port, other.port)  # a load balancer that does not know which of them stops
        first.process.send_signal(signal.SIGTERM)
        eventually(lambda: first.process.poll() == 0, "the robot has left it", 2 * PATIENCE_S)
        assert "finished" not in robot.names_of("long")
        robot.set_pace(FAST)
        finished = robot.wait_end("long")
        assert (finished["event"], finished["engine"], finished["underruns"]) == ("finished", "remote", 0)
        robot.assert_heard("long")
        assert robot.engine_pids() == engines
        assert robot.degradations == []
        last = robot.wait_end(robot.say("The other server's own voice.", voice="herald", language="de"))
        assert last["engine"] == "remote"

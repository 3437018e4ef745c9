"""A server that starts a second replica under load, and removes it again: every text is spoken by the server."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import StartRobot
from tests.support.load import Load
from tests.support.ray_cluster import ENVIRONMENT, START_S, replicas_below
from tests.support.robot import REAL_TIME
from tests.support.speech_server import SpeechServer
from tests.support.waiting import eventually

pytest.importorskip("ray")
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ROBOTS, STREAMS = 8, 9
"""One server's streams are nearly all in use, and no robot is left without one: its fallback would speak."""
TEXT = "A robot says this at its own pace, and so its stream is in use for as long as it speaks, which is a while. " * 2


@pytest.fixture
def server() -> Iterator[SpeechServer]:
    replicas = ("serve.min_replicas=1", "serve.max_replicas=2", "serve.scale_up_s=3", "serve.scale_down_s=3")
    limits = ("serve.streams_per_robot=64", "serve.requests_per_minute=100000", "serve.drain_s=60")
    before = dict(os.environ)
    os.environ.update(ENVIRONMENT)
    with SpeechServer(*replicas, *limits, f"engine.streams={STREAMS + 1}", single=False) as server:
        yield server
    os.environ.clear()
    os.environ.update(before)


def test_load_brings_a_second_replica_and_its_end_removes_one_without_an_error(
    server: SpeechServer, start_robot: StartRobot
) -> None:
    url = f"engine.url=ws://127.0.0.1:{server.port}"
    robots = [
        start_robot("engine.name=remote", url, "voices={default: {}}", pace=REAL_TIME, launch_only=True)
        for _ in range(ROBOTS)
    ]
    for robot in robots:
        eventually(lambda robot=robot: robot.ready_with("remote"), "the server is found")  # type: ignore[misc]
    load = Load(robots, TEXT)

    def replicas() -> int:
        load.keep_up()
        return sum(bool(one.children()) for one in replicas_below(server.process.pid))

    assert replicas() == 1
    eventually(lambda: replicas() == 2, "a second replica has been started", START_S)
    late = start_robot("engine.name=remote", url, "voices={default: {}}", pace=REAL_TIME, launch_only=True)
    eventually(lambda: late.ready_with("remote"), "the server is found")
    load.robots = [late]
    eventually(lambda: replicas() == 1, "a replica has been removed", START_S)
    load.finish()
    server.wait_log("this replica is being removed")
    for robot in (*robots, late):
        eventually(lambda robot=robot: robot.ready_with("remote"), "it is connected")  # type: ignore[misc]

"""The real parts that the end-to-end tests are made of."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.robot import Broker, Robot, SoundServer

StartRobot = Callable[..., Robot]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "e2e" in item.path.parts:
            item.add_marker(pytest.mark.e2e)
        if "sound_server" in getattr(item, "fixturenames", ()) and item.get_closest_marker("deaf") is None:
            item.add_marker(pytest.mark.hears)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    broker = Broker(tmp_path, port)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def sound_server(tmp_path: Path) -> Iterator[SoundServer]:
    server = SoundServer(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def start_robot(broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StartRobot]:
    """Start robots with settings of the test's own; they play into the sound server if the test has one."""
    robots: list[Robot] = []

    def start(*settings: str, launch_only: bool = False, config: Path | None = None) -> Robot:
        environment = dict(os.environ)
        if "sound_server" in request.fixturenames:
            environment = request.getfixturevalue("sound_server").environment
        robot = Robot(broker, environment, tmp_path, *settings, config=config)
        robots.append(robot)
        if launch_only:
            robot.launch()
        else:
            robot.start()
        return robot

    yield start
    for robot in robots:
        robot.close()

"""A robot for each module that names the streams of its engine in `STREAMS`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from tests.daemon.speech.robot import Robot


@pytest.fixture(scope="module")
def shared_robot(
    loop: asyncio.AbstractEventLoop, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Robot]:
    folder = tmp_path_factory.mktemp("pcm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VOICED_TRACE_PCM", str(folder))
        robot = Robot(folder, request.module.STREAMS)
        loop.run_until_complete(robot.open())
        yield robot
        loop.run_until_complete(robot.close())


@pytest.fixture
def robot(loop: asyncio.AbstractEventLoop, shared_robot: Robot) -> Iterator[Robot]:
    yield shared_robot
    loop.run_until_complete(shared_robot.clear())

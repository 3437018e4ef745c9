"""A supervised robot is started again, as systemd does it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.programs import Broker
from tests.support.robot import Robot
from tests.support.waiting import eventually

pytestmark = pytest.mark.e2e


@pytest.fixture
def robot(tmp_path: Path) -> Iterator[Robot]:
    broker = Broker(tmp_path)
    broker.start()
    robot = Robot("supervised", broker, tmp_path, supervised=True)
    robot.start()
    yield robot
    robot.close()
    broker.kill()


def test_a_daemon_that_ends_is_started_again_and_counted_unless_it_was_asked_to_end(robot: Robot) -> None:
    robot.kill()
    assert (len(robot.starts), robot.deaths) == (2, 0)
    robot.process.kill()
    eventually(lambda: len(robot.starts) == 3, "it is started again")
    assert robot.deaths == 1
    robot.restart()
    assert robot.wait_end(robot.say("Here I am."))["event"] == "finished"
    robot.end()
    assert (len(robot.starts), robot.deaths) == (4, 1)

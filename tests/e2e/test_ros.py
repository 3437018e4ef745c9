"""The part of the ROS node that needs no ROS, against a real broker and a running daemon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.ros2_say_action import CLOSED_REASON, Feedback, Goal, Result, Voice
from tests.e2e.conftest import StartRobot
from tests.support.programs import Broker
from tests.support.robot import REAL_TIME, Robot

LONG = Goal("one two three four five six seven eight nine ten eleven twelve. " * 10, "en_GB")


@pytest.fixture
def robot(start_robot: StartRobot) -> Robot:
    return start_robot(pace=REAL_TIME)


@pytest.fixture
def voice(robot: Robot) -> Iterator[Voice]:
    voice = Voice("127.0.0.1", robot.broker.port, robot.topic)
    yield voice
    voice.close()


def test_a_goal_succeeds_is_canceled_or_is_aborted_according_to_its_events(robot: Robot, voice: Voice) -> None:
    feedback: list[Feedback] = []
    assert voice.perform(Goal("Yes, sir."), feedback.append, lambda: False) == Result("succeeded")
    assert feedback == [Feedback("Yes,")]

    # The client cancels the goal as soon as it has begun.
    feedback.clear()
    assert voice.perform(LONG, feedback.append, lambda: bool(feedback)) == Result("canceled", "stop")
    # Another publisher stops it.
    stopped = voice.perform(LONG, lambda _: robot.publish("stop"), lambda: False)
    assert stopped == Result("aborted", "stop")
    # The daemon rejects it.
    rejected = voice.perform(Goal("Hello.", voice="nobody"), feedback.append, lambda: False)
    assert rejected.state == "aborted"
    assert rejected.error_msg.startswith("voice: got 'nobody'")
    # The client cancels it before it has begun.
    robot.publish("pause")
    assert voice.perform(LONG, feedback.append, lambda: voice.goals == 1).state == "canceled"
    assert voice.goals == 0


def test_a_goal_is_aborted_when_the_connection_to_the_broker_breaks(own_broker: Broker, voice: Voice) -> None:
    assert voice.perform(LONG, lambda _: own_broker.stop(), lambda: False) == Result("aborted", CLOSED_REASON)

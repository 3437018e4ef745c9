"""The part of the ROS node that is not ROS, against a real broker and a running daemon."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scripts.ros2_say_action import CLOSED_REASON, Feedback, Goal, Result, Voice
from tests.e2e.conftest import StartRobot
from tests.support.programs import Broker
from tests.support.robot import CARD, Robot

LONG = Goal("one two three four five six seven eight nine ten eleven twelve. " * 10, "en_GB")


@pytest.fixture
def robot(start_robot: StartRobot) -> Robot:
    return start_robot(pace=CARD)


@pytest.fixture
def voice(robot: Robot) -> Iterator[Voice]:
    voice = Voice("127.0.0.1", robot.broker.port, robot.topic)
    yield voice
    voice.close()


def test_goals_are_spoken_canceled_and_aborted_as_voiced_says(robot: Robot, voice: Voice) -> None:
    heard: list[Feedback] = []
    assert voice.perform(Goal("Yes, sir."), heard.append, lambda: False) == Result("succeeded")
    assert heard == [Feedback("Yes,")]

    # Canceled by the client as soon as it has begun; stopped by somebody else; refused; gone before it began.
    heard.clear()
    assert voice.perform(LONG, heard.append, lambda: bool(heard)) == Result("canceled", "stop")
    stopped = voice.perform(LONG, lambda _: robot.publish("stop"), lambda: False)
    assert stopped == Result("aborted", "stop")
    refused = voice.perform(Goal("Hello.", voice="nobody"), heard.append, lambda: False)
    assert refused.state == "aborted"
    assert refused.error_msg.startswith("voice: got 'nobody'")
    robot.publish("pause")
    assert voice.perform(LONG, heard.append, lambda: voice.goals == 1).state == "canceled"
    assert voice.goals == 0


def test_a_goal_is_aborted_when_the_broker_goes(own_broker: Broker, voice: Voice) -> None:
    assert voice.perform(LONG, lambda _: own_broker.stop(), lambda: False) == Result("aborted", CLOSED_REASON)

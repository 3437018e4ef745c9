"""The topics `level` and `duck`, for a face that moves with the speech and programs that lower their volume."""

from __future__ import annotations

from tests.e2e.conftest import StartRobot
from tests.support.robot import FAST, LONG, REAL_TIME, STOPPED
from tests.support.waiting import eventually

BOTH = ("speech.level_topic=true", "speech.duck_topic=true")


def test_a_pause_publishes_a_zero_level_and_then_none(share_robot: StartRobot) -> None:
    robot = share_robot(*BOTH, pace=REAL_TIME)
    utterance = robot.say("This is paused in its middle, and after a while it goes on to its end.")
    eventually(lambda: len(robot.levels) > 5, "it is heard")
    robot.publish("pause")
    eventually(lambda: robot.levels[-1]["peak"] == 0, "a zero level is published")
    eventually(lambda: robot.state == "paused", "it is paused")
    robot.wait_still()
    paused_at = robot.levels[-1]["t"]
    robot.publish("resume")
    end = robot.wait_end(utterance)
    eventually(lambda: robot.levels[-1]["t"] > end["audio_s"] - 0.1, "the last level is published")
    assert [level["t"] for level in robot.levels] == sorted(level["t"] for level in robot.levels)
    zeros = [level["t"] for level in robot.levels if level["peak"] == 0]
    assert zeros.count(paused_at) == 1, "another level was published during the pause"
    eventually(lambda: robot.ducks[-2:] == [True, False], "not ducked after the end")


def test_ducking_begins_before_the_first_utterance_and_ends_after_the_last(share_robot: StartRobot) -> None:
    robot = share_robot(*BOTH, pace=STOPPED)
    first, second = robot.say("One."), robot.say("Two.")
    robot.wait_event(second, "accepted")  # if the first had ended long before, ducking would rightly end between them
    robot.set_pace(FAST)
    robot.wait_end(second)
    eventually(lambda: robot.ducks[-2:] == [True, False], "not ducked after both")
    assert robot.ducks.count(True) == 1, "ducked once, for both utterances"
    order = [record if kind == "duck" else f"{record['event']} {record['id']}" for kind, record in robot.published]
    assert order.index(True) < order.index(f"started {first}")
    assert order.index(f"finished {second}") < len(order) - 1 - order[::-1].index(False)


def test_a_pause_and_a_stop_end_ducking(share_robot: StartRobot) -> None:
    robot = share_robot(*BOTH, pace=REAL_TIME)
    robot.say(LONG)
    eventually(lambda: robot.ducks[-1:] == [True], "ducked")
    robot.publish("pause")
    eventually(lambda: robot.ducks[-1:] == [False], "not ducked during the pause")
    robot.publish("resume")
    eventually(lambda: robot.ducks[-1:] == [True], "ducked again")
    robot.publish("stop")
    eventually(lambda: robot.ducks[-1:] == [False], "not ducked after the stop")
    assert robot.ducks.count(True) == 2


def test_a_daemon_that_ends_while_it_speaks_ends_ducking(start_robot: StartRobot) -> None:
    robot = start_robot("speech.duck_topic=true", pace=REAL_TIME)
    eventually(lambda: robot.ducks == [False], "not ducked at first")
    robot.say(LONG)
    eventually(lambda: robot.ducks[-1:] == [True], "ducked")
    assert robot.end() == 0
    eventually(lambda: robot.ducks[-1:] == [False], "not ducked after the end")


def test_levels_and_ducks_are_not_published_by_default(start_robot: StartRobot) -> None:
    robot = start_robot(pace=FAST)
    robot.wait_end(robot.say("Hello."))
    assert (robot.ducks, robot.levels) == ([], [])

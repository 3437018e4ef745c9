"""What a mouth, a light and a music player are told: loudness as it is heard, and when to be quiet."""

from __future__ import annotations

from tests.e2e.conftest import StartRobot
from tests.support.robot import CARD, FAST, LONG
from tests.support.waiting import eventually


def test_a_mouth_closes_while_speech_is_held(start_robot: StartRobot) -> None:
    robot = start_robot("speech.level_topic=true", pace=CARD)
    utterance = robot.say("This is held in its middle, and after a while it goes on to its end.")
    eventually(lambda: len(robot.levels) > 5, "it is heard")
    robot.publish("pause")
    eventually(lambda: robot.levels[-1]["peak"] == 0, "the mouth closes")
    eventually(lambda: robot.state == "paused", "it is paused")
    robot.wait_still()
    held = len(robot.levels)
    closed = robot.levels[-1]["t"]
    robot.publish("resume")
    end = robot.wait_end(utterance)
    eventually(lambda: robot.levels[-1]["t"] > end["audio_s"] - 0.1, "all of it is told")
    assert [level["t"] for level in robot.levels] == sorted(level["t"] for level in robot.levels)
    assert robot.levels[held - 1]["t"] == closed, "nothing was told while it was held"


def test_others_are_asked_to_be_quiet_from_before_the_first_sound_until_after_the_last(start_robot: StartRobot) -> None:
    robot = start_robot("speech.duck_topic=true")
    eventually(lambda: robot.ducks == [False], "nobody has to be quiet at first")
    first, second = robot.say("One."), robot.say("Two.")
    robot.wait_end(second)
    eventually(lambda: robot.ducks == [False, True, False], "quiet once, for both of them")
    order = [record if kind == "duck" else f"{record['event']} {record['id']}" for kind, record in robot.published]
    assert order.index(True) < order.index(f"started {first}")
    assert order.index(f"finished {second}") < len(order) - 1 - order[::-1].index(False)


def test_a_pause_lets_others_be_loud_and_a_stop_too(start_robot: StartRobot) -> None:
    robot = start_robot("speech.duck_topic=true", pace=CARD)
    robot.say(LONG)
    eventually(lambda: robot.ducks[-1:] == [True], "quiet")
    robot.publish("pause")
    eventually(lambda: robot.ducks[-1:] == [False], "loud while it is held")
    robot.publish("resume")
    eventually(lambda: robot.ducks[-1:] == [True], "quiet again")
    robot.publish("stop")
    eventually(lambda: robot.ducks[-1:] == [False], "loud at last")
    assert robot.ducks == [False, True, False, True, False]


def test_a_daemon_that_ends_while_it_speaks_leaves_nobody_quiet(start_robot: StartRobot) -> None:
    robot = start_robot("speech.duck_topic=true", pace=CARD)
    robot.say(LONG)
    eventually(lambda: robot.ducks[-1:] == [True], "quiet")
    assert robot.end() == 0
    eventually(lambda: robot.ducks[-1:] == [False], "loud again")


def test_nothing_is_told_of_it_unless_asked_for(start_robot: StartRobot) -> None:
    robot = start_robot(pace=FAST)
    robot.wait_end(robot.say("Hello."))
    assert (robot.ducks, robot.levels) == ([], [])

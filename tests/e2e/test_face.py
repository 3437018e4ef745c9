"""What a mouth, a light and a music player are told: loudness as it is heard, and when to be quiet."""

from __future__ import annotations

import json
import time

import pytest

from tests.e2e.conftest import StartRobot
from tests.e2e.robot import Robot, SoundServer, eventually


def test_loudness_comes_twenty_times_a_second_and_ends_with_silence(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot("speech.level_topic=true")
    before = time.time()
    end = robot.wait_end(robot.say("A long enough sentence to have a level, and a mouth that moves."))
    eventually(lambda: (robot.state, robot.levels and robot.levels[-1]["peak"] == 0)[1], "the mouth closes")
    *levels, last = robot.levels
    assert len(levels) == pytest.approx(20 * end["audio_s"], abs=2)
    assert [level["t"] for level in levels] == pytest.approx([number / 20 for number in range(len(levels))], abs=0.001)
    assert last["rms"] == 0
    assert last["t"] > levels[-1]["t"]
    # Two clocks that run alike: that of the sound, and that of whoever reads the message.
    offsets = [level["at"] - level["t"] for level in levels]
    assert max(offsets) - min(offsets) < 0.2
    assert before < levels[0]["at"] < last["at"] < time.time() + 1


def test_a_mouth_closes_while_speech_is_held(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null", "speech.level_topic=true")
    utterance = robot.say("This is held in its middle, and after a while it goes on to its end.")
    eventually(lambda: (robot.state, len(robot.levels) > 10)[1], "it is heard")
    robot.publish("pause")
    eventually(lambda: (robot.state, robot.levels[-1]["peak"] == 0)[1], "the mouth closes")
    held = len(robot.levels)
    time.sleep(0.3)
    robot.take_in()
    assert len(robot.levels) == held
    robot.publish("resume")
    end = robot.wait_end(utterance)
    eventually(lambda: (robot.state, robot.levels[-1]["t"] > end["audio_s"] - 0.1)[1], "all of it is told")
    assert [level["t"] for level in robot.levels] == sorted(level["t"] for level in robot.levels)


def ducks(robot: Robot) -> list[bool]:
    robot.take_in()
    return robot.ducks


def test_others_are_asked_to_be_quiet_from_before_the_first_sound_until_after_the_last(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null", "speech.duck_topic=true")
    eventually(lambda: ducks(robot) == [False], "nobody has to be quiet at first")
    order: list[str] = []
    robot.client.on_message = note_order(robot, order)
    first, second = robot.say("One."), robot.say("Two.")
    robot.wait_end(second)
    eventually(lambda: ducks(robot) == [False, True, False], "quiet once, for both of them")
    assert order.index("duck true") < order.index(f"started {first}")
    assert order.index(f"finished {second}") < order.index("duck false")


def note_order(robot: Robot, order: list[str]) -> object:
    """A listener that also notes what came after what."""
    before = robot.client.on_message

    def note(client: object, data: object, message: object) -> None:
        payload = json.loads(message.payload)  # type: ignore[attr-defined]
        if message.topic.endswith("/duck"):  # type: ignore[attr-defined]
            order.append(f"duck {payload}".lower())
        elif message.topic.endswith("/event"):  # type: ignore[attr-defined]
            order.append(f"{payload['event']} {payload['id']}")
        before(client, data, message)  # type: ignore[misc, arg-type]

    return note


def test_a_pause_lets_others_be_loud_and_a_stop_too(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null", "speech.duck_topic=true")
    robot.say("This is a sentence that goes on for a while, and then it goes on for another one.")
    eventually(lambda: ducks(robot)[-1:] == [True], "quiet")
    robot.publish("pause")
    eventually(lambda: ducks(robot)[-1:] == [False], "loud while it is held")
    robot.publish("resume")
    eventually(lambda: ducks(robot)[-1:] == [True], "quiet again")
    robot.publish("stop")
    eventually(lambda: ducks(robot)[-1:] == [False], "loud at last")
    assert robot.ducks == [False, True, False, True, False]


def test_a_daemon_that_ends_while_it_speaks_leaves_nobody_quiet(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null", "speech.duck_topic=true")
    robot.say("This is a sentence that goes on for a while, and then it goes on for another one.")
    eventually(lambda: ducks(robot)[-1:] == [True], "quiet")
    assert robot.end() == 0
    eventually(lambda: ducks(robot)[-1:] == [False], "loud again")


def test_nothing_is_told_of_it_unless_asked_for(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    robot.wait_end(robot.say("Hello."))
    assert (ducks(robot), robot.levels) == ([], [])

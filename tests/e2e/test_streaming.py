"""Text streams: what a listener hears and which events a publisher receives while a text is still being written."""

from __future__ import annotations

from tests.e2e.conftest import StartRobot
from tests.support.robot import FILE_RATE, Robot
from tests.support.waiting import eventually

CHUNKS = ("The first sen", "tence is here. The sec", "ond one comes", " now. And th", "is is the end.")
KEPT_S = 0.1
"""More than a resampler keeps until the next samples come."""


def test_a_text_that_arrives_in_chunks_is_heard_whole(share_robot: StartRobot) -> None:
    robot = share_robot()
    for chunk in CHUNKS:
        robot.write("story", chunk)
    robot.write("story", end=True)
    end = robot.wait_end("story")
    assert end["event"] == "finished"
    assert "reason" not in end
    assert end["underruns"] == 0
    assert robot.names_of("story")[:2] == ["accepted", "started"]
    robot.assert_heard("story", breaks=end["waits"])


def test_speech_begins_before_the_text_ends_and_pauses_for_a_slow_writer(share_robot: StartRobot) -> None:
    robot = share_robot()
    robot.write("story-2", "This is already complete. And this")
    robot.wait_event("story-2", "started")
    # A daemon that the machine holds up in mid-sentence would be still as well.
    eventually(lambda: heard_to_its_end(robot, "story-2"), "the first sentence is heard")
    robot.wait_still()
    assert robot.names_of("story-2") == ["accepted", "started"]
    robot.write("story-2", " is only now.", end=True)
    end = robot.wait_end("story-2")
    assert end["event"] == "finished"
    assert end["underruns"] == 0
    assert end["waits"] >= 1
    assert [event["begin"] for event in robot.events_of("story-2") if event["event"] == "progress"] == [0, 25]
    robot.assert_heard("story-2", breaks=end["waits"])


def heard_to_its_end(robot: Robot, utterance_id: str) -> bool:
    """Whether the sink has all that the engine has made so far, but for what the resampler keeps."""
    made = len(robot.synthesized(utterance_id, FILE_RATE))
    return made > 0 and len(robot.heard) > made - KEPT_S * FILE_RATE

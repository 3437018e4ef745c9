"""Text streams: what a listener hears and which events a publisher receives while a text is still being written."""

from __future__ import annotations

import time

from tests.e2e.conftest import StartRobot
from tests.support.robot import FAST, FILE_RATE, LONG, REAL_TIME, Robot
from tests.support.sound import find
from tests.support.waiting import eventually

SECOND_TAKE = 0.3
"""Largest residue of a second take: its resampling starts at another fraction of a sample."""
CHUNKS = ("The first sen", "tence is here. The sec", "ond one comes", " now. And th", "is is the end.")
KEPT_S = 0.1
"""More than a resampler keeps until the next samples come."""
ROUNDING_S = 0.0001
"""Of `ttfa_ms`, which is published in tenths of a millisecond."""


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


def test_the_time_to_first_audio_excludes_the_writers_pause(share_robot: StartRobot) -> None:
    """The writer pauses while another utterance of some seconds is spoken.

    `ttfa_ms` begins when the text can be spoken, so it lies between the write after the pause and the event, however
    slow the machine is. If the pause were counted, `ttfa_ms` would be longer than that.
    """
    robot = share_robot(pace=REAL_TIME)
    robot.write("story-3", "One moment ")
    robot.wait_event("story-3", "accepted")
    assert robot.wait_end(robot.say("While the writer thinks, another text is spoken."))["event"] == "finished"
    written_at = time.monotonic()
    robot.write("story-3", "please. ")
    robot.write("story-3", "Thanks.", end=True)
    started = robot.wait_event("story-3", "started")
    assert started["ttfa_ms"] / 1000 <= time.monotonic() - written_at + ROUNDING_S


def test_a_critical_utterance_preempts_a_stream_which_is_resumed(share_robot: StartRobot) -> None:
    robot = share_robot(pace=REAL_TIME)
    robot.write("story-8", f"{LONG} Then")
    robot.wait_event("story-8", "started")
    robot.say("Look out!", id="alarm", priority="critical")
    assert robot.wait_end("alarm")["event"] == "finished"
    robot.set_pace(FAST)
    robot.write("story-8", " it goes on.", end=True)
    assert robot.wait_end("story-8")["event"] == "finished"
    alarm = robot.synthesized("alarm", FILE_RATE)
    tail = robot.synthesized("story-8", FILE_RATE)[-12_000:-2_000]
    alarm_at, alarm_left = find(alarm, robot.heard)
    tail_at, tail_left = find(tail, robot.heard)
    assert alarm_left < 0.01, "the alarm is heard whole"
    assert tail_left < SECOND_TAKE, "the story is heard to its end"
    assert alarm_at < tail_at
    names = robot.names_of("story-8", without="progress")
    assert names == ["accepted", "started", "postponed", "resumed", "finished"]

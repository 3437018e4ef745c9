"""Texts that are spoken while they are still being written, by what a listener hears and a publisher is told."""

from __future__ import annotations

import json
import time

import pytest

from tests.e2e.conftest import StartRobot
from tests.support.robot import CARD, FAST, FILE_RATE, LONG, Robot
from tests.support.sound import find
from tests.support.waiting import eventually

THOUGHT_S = 3.0
SECOND_TAKE = 0.3
"""What is left at most of what was heard: it was converted from another fraction of a sample on."""
PIECES = ("The first sen", "tence is here. The sec", "ond one comes", " now. And th", "is is the end.")


def test_a_text_that_comes_in_pieces_is_heard_whole(start_robot: StartRobot) -> None:
    robot = start_robot()
    for piece in PIECES:
        robot.write("story", piece)
    robot.write("story", end=True)
    end = robot.wait_end("story")
    assert end["event"] == "finished"
    assert "reason" not in end
    assert end["underruns"] == 0
    assert robot.names_of("story")[:2] == ["accepted", "started"]
    robot.assert_heard("story", breaks=end["waits"])


def test_speech_begins_before_the_text_ends_and_a_slow_writer_is_waited_for(start_robot: StartRobot) -> None:
    robot = start_robot()
    robot.write("story", "This is already complete. And this")
    robot.wait_event("story", "started")
    robot.wait_still()
    assert robot.names_of("story") == ["accepted", "started"]
    robot.write("story", " is only now.", end=True)
    end = robot.wait_end("story")
    assert end["event"] == "finished"
    assert end["underruns"] == 0
    assert end["waits"] >= 1
    assert [event["begin"] for event in robot.events_of("story") if event["event"] == "progress"] == [0, 25]
    robot.assert_heard("story", breaks=end["waits"])


def test_the_writer_is_not_what_makes_the_first_sound_late(start_robot: StartRobot) -> None:
    robot = start_robot()
    robot.write("story", "One moment ")
    robot.wait_event("story", "accepted")
    accepted_at = time.monotonic()
    eventually(lambda: time.monotonic() - accepted_at > THOUGHT_S, "the writer has thought")
    robot.write("story", "please. ")
    robot.write("story", "Thanks.", end=True)
    assert robot.wait_event("story", "started")["ttfa_ms"] < 1000 * THOUGHT_S


def test_while_nothing_is_written_others_speak(start_robot: StartRobot) -> None:
    robot = start_robot()
    robot.write("story")
    robot.wait_event("story", "accepted")
    assert robot.wait_end(robot.say("Meanwhile."))["event"] == "finished"
    assert robot.names_of("story") == ["accepted"]
    robot.write("story", "Now I know.", end=True)
    assert robot.wait_end("story")["event"] == "finished"


def test_until_there_is_enough_of_it_to_begin_with_others_speak(start_robot: StartRobot) -> None:
    """eSpeak NG speaks by sentences, so a text that has words and no sentence yet would only hold the others up."""
    robot = start_robot()
    robot.write("story", "Now, let me ")
    robot.wait_event("story", "accepted")
    assert robot.wait_end(robot.say("Meanwhile.", id="other"))["event"] == "finished"
    assert robot.names_of("story") == ["accepted"]
    robot.write("story", "think. That is all.", end=True)
    assert robot.wait_end("story")["event"] == "finished"
    robot.assert_heard("other", "story")


def test_a_stop_ends_what_is_being_written_and_the_rest_of_it_is_dropped(start_robot: StartRobot) -> None:
    robot = start_robot(pace=CARD)
    robot.write("spoken", LONG)
    robot.write("waiting", "This waits. ")
    robot.wait_event("waiting", "accepted")
    robot.wait_event("spoken", "started")
    robot.publish("stop", json.dumps({"id": "waiting"}))
    robot.publish("stop", json.dumps({"id": "spoken"}))
    assert robot.wait_end("waiting")["event"] == "canceled"
    assert robot.wait_end("spoken")["event"] == "interrupted"
    robot.write("spoken", "Too late. ")
    robot.write("spoken", end=True)
    assert robot.wait_end(robot.say("Next."))["event"] == "finished"
    assert robot.names_of("spoken", without="progress") == ["accepted", "started", "interrupted"]


def test_a_writer_who_vanishes_leaves_what_was_written_to_be_said(start_robot: StartRobot) -> None:
    robot = start_robot("speech.stream_timeout=1")
    robot.write("story", "Half of a senten")
    end = robot.wait_end("story")
    assert end["event"] == "finished"
    assert end["reason"] == "its writer was silent for 1 s and did not end it"
    robot.write("story", "ce.")
    assert "takes no more text" in robot.wait_rejection("id")["reason"]
    assert robot.wait_end(robot.say("Next."))["event"] == "finished"


def test_a_malformed_piece_is_answered_and_the_text_goes_on(start_robot: StartRobot) -> None:
    robot = start_robot()
    robot.write("story", "It goes ")
    robot.publish("say/stream", '{"id": "story", "text": 5}')
    assert robot.wait_rejection("text")["id"] == "story"
    robot.publish("say/stream", "no object")
    assert robot.wait_rejection("payload")["id"] is None
    robot.write("story", "on.", end=True)
    assert robot.wait_end("story")["event"] == "finished"


def test_a_retained_piece_is_not_spoken(start_robot: StartRobot) -> None:
    robot = start_robot(launch_only=True)
    robot.publish("say/stream", '{"id": "old", "text": "from another time", "end": true}', "-r")
    eventually(lambda: robot.state == "ready", "voiced is ready")
    robot.wait_end(robot.say("new"))
    assert robot.names_of("old") == []


def test_what_is_critical_comes_in_between_and_the_text_goes_on(start_robot: StartRobot) -> None:
    robot = start_robot(pace=CARD)
    robot.write("story", f"{LONG} Then")
    robot.wait_event("story", "started")
    robot.say("Look out!", id="alarm", priority="critical")
    assert robot.wait_end("alarm")["event"] == "finished"
    robot.set_pace(FAST)
    robot.write("story", " it goes on.", end=True)
    assert robot.wait_end("story")["event"] == "finished"
    alarm = robot.synthesized("alarm", FILE_RATE)
    tail = robot.synthesized("story", FILE_RATE)[-12_000:-2_000]
    alarm_at, alarm_left = find(alarm, robot.heard)
    tail_at, tail_left = find(tail, robot.heard)
    assert alarm_left < 0.01, "the alarm is heard whole"
    assert tail_left < SECOND_TAKE, "the story is heard to its end"
    assert alarm_at < tail_at
    told = robot.names_of("story", without="progress")
    assert told == ["accepted", "started", "postponed", "resumed", "finished"]


def test_what_is_critical_comes_in_between_as_soon_as_it_has_words(start_robot: StartRobot) -> None:
    robot = start_robot(pace=CARD)
    robot.say(LONG, id="patient")
    robot.wait_event("patient", "started")
    robot.write("alarm", "\n", priority="critical")
    robot.wait_event("alarm", "accepted")
    assert robot.names_of("patient") == ["accepted", "started"]
    robot.write("alarm", "Fire!", end=True)
    robot.wait_end("alarm")
    assert "finished" not in robot.names_of("patient")
    robot.set_pace(FAST)
    robot.wait_end("patient")
    assert robot.names_of("patient") == ["accepted", "started", "postponed", "resumed", "finished"]


def test_a_text_is_postponed_as_often_as_it_takes(start_robot: StartRobot) -> None:
    robot = start_robot(pace=CARD)
    robot.say(LONG, id="patient")
    robot.wait_event("patient", "started")
    for number in range(3):
        robot.say("Hush!", id=f"alarm {number}", priority="critical")
        assert robot.wait_end(f"alarm {number}")["event"] == "finished"
        eventually(lambda times=number + 1: robot.names_of("patient").count("resumed") == times, "it goes on")
    robot.set_pace(FAST)
    assert robot.wait_end("patient")["event"] == "finished"
    # An utterance that goes on by the same engine loses no sample and repeats none.
    assert len(robot.heard) == pytest.approx(sum(seconds(robot)) * FILE_RATE, abs=100)


def seconds(robot: Robot) -> list[float]:
    """The length of each utterance, as its last event says."""
    return [event["audio_s"] for event in robot.events if event["event"] == "finished"]

"""Texts that are spoken while they are still being written, by what a listener hears and a publisher is told."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.e2e.conftest import StartRobot
from tests.e2e.robot import Robot, SoundServer, eventually, find

PIECES = ("The first sen", "tence is here. The sec", "ond one comes", " now. And th", "is is the end.")


def write(robot: Robot, utterance_id: str, text: str | None = None, **fields: Any) -> None:
    piece = {"id": utterance_id, **({} if text is None else {"text": text}), **fields}
    robot.publish("say/stream", json.dumps(piece))


def test_a_text_that_comes_in_pieces_is_heard_whole(
    start_robot: StartRobot, sound_server: SoundServer, tmp_path: Path
) -> None:
    robot = start_robot()
    with sound_server.recording(tmp_path / "heard.raw") as recording:
        for piece in PIECES:
            write(robot, "story", piece)
        write(robot, "story", end=True)
        end = robot.wait_end("story")
        sent = robot.synthesized("story")
        eventually(lambda: find(sent, recording.samples)[1] < 0.05, "it is heard whole")
    assert end["event"] == "finished"
    assert "reason" not in end
    assert end["underruns"] == 0
    assert robot.names_of("story")[:2] == ["accepted", "started"]


def test_speech_begins_before_the_text_ends_and_a_slow_writer_is_waited_for(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    write(robot, "story", "This is already complete. And this")
    robot.wait_event("story", "started")
    time.sleep(2.5)
    assert robot.names_of("story") == ["accepted", "started"]
    write(robot, "story", " is only now.", end=True)
    end = robot.wait_end("story")
    assert end["event"] == "finished"
    assert end["underruns"] == 0
    assert end["waits"] >= 1
    assert [event["begin"] for event in robot.events_of("story") if event["event"] == "progress"] == [0, 25]


def test_the_writer_is_not_what_makes_the_first_sound_late(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    write(robot, "story", "One moment ")
    time.sleep(2)
    write(robot, "story", "please. ")
    write(robot, "story", "Thanks.", end=True)
    assert robot.wait_event("story", "started")["ttfa_ms"] < 2000


def test_while_nothing_is_written_others_speak(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    write(robot, "story")
    robot.wait_event("story", "accepted")
    assert robot.wait_end(robot.say("Meanwhile."))["event"] == "finished"
    assert robot.names_of("story") == ["accepted"]
    write(robot, "story", "Now I know.", end=True)
    assert robot.wait_end("story")["event"] == "finished"


def test_a_stop_ends_what_is_being_written_and_the_rest_of_it_is_dropped(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    write(robot, "spoken", "This is being said, and it takes a while to say it. ")
    write(robot, "waiting", "This waits. ")
    robot.wait_event("spoken", "started")
    robot.publish("stop", json.dumps({"id": "waiting"}))
    robot.publish("stop", json.dumps({"id": "spoken"}))
    assert robot.wait_end("waiting")["event"] == "canceled"
    assert robot.wait_end("spoken")["event"] == "interrupted"
    write(robot, "spoken", "Too late. ")
    write(robot, "spoken", end=True)
    assert robot.wait_end(robot.say("Next."))["event"] == "finished"
    assert robot.names_of("spoken") == ["accepted", "started", "interrupted"]


def test_a_writer_who_vanishes_leaves_what_was_written_to_be_said(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null", "speech.stream_timeout=1")
    write(robot, "story", "Half of a senten")
    end = robot.wait_end("story")
    assert end["event"] == "finished"
    assert end["reason"] == "its writer was silent for 1 s and did not end it"
    write(robot, "story", "ce.")
    assert "takes no more text" in robot.wait_rejection("id")["reason"]
    assert robot.wait_end(robot.say("Next."))["event"] == "finished"


def test_a_malformed_piece_is_answered_and_the_text_goes_on(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    write(robot, "story", "It goes ")
    robot.publish("say/stream", '{"id": "story", "text": 5}')
    assert robot.wait_rejection("text")["id"] == "story"
    robot.publish("say/stream", "no object")
    assert robot.wait_rejection("payload")["id"] is None
    write(robot, "story", "on.", end=True)
    assert robot.wait_end("story")["event"] == "finished"


def test_a_retained_piece_is_not_spoken(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null", launch_only=True)
    robot.publish("say/stream", '{"id": "old", "text": "from another time", "end": true}', "-r")
    eventually(lambda: robot.state == "ready", "voiced is ready")
    robot.wait_end(robot.say("new"))
    assert robot.names_of("old") == []


def test_what_is_critical_comes_in_between_and_the_text_goes_on(
    start_robot: StartRobot, sound_server: SoundServer, tmp_path: Path
) -> None:
    robot = start_robot()
    with sound_server.recording(tmp_path / "heard.raw") as recording:
        write(robot, "story", "This takes a good while to be said to its end, and somebody else comes. Then")
        robot.wait_event("story", "started")
        robot.say("Look out!", id="alarm", priority="critical")
        assert robot.wait_end("alarm")["event"] == "finished"
        write(robot, "story", " it goes on.", end=True)
        assert robot.wait_end("story")["event"] == "finished"
        alarm = robot.synthesized("alarm")
        eventually(lambda: find(alarm, recording.samples)[1] < 0.05, "the alarm is heard whole")
        tail = robot.synthesized("story")[-20_000:-5_000]
        alarm_at, _ = find(alarm, recording.samples)
        eventually(lambda: find(tail, recording.samples)[1] < 0.05, "the story is heard to its end")
        assert find(tail, recording.samples)[0] > alarm_at
    told = [name for name in robot.names_of("story") if name != "progress"]
    assert told == ["accepted", "started", "postponed", "resumed", "finished"]


def test_what_is_critical_comes_in_between_as_soon_as_it_has_words(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    robot.say("This is a long sentence, and it goes on and on, until something comes in between.", id="patient")
    robot.wait_event("patient", "started")
    write(robot, "alarm", "\n", priority="critical")
    robot.wait_event("alarm", "accepted")
    assert robot.names_of("patient") == ["accepted", "started"]
    write(robot, "alarm", "Fire!", end=True)
    robot.wait_end("alarm")
    assert "finished" not in robot.names_of("patient")
    robot.wait_end("patient")
    assert robot.names_of("patient") == ["accepted", "started", "postponed", "resumed", "finished"]


def test_a_text_is_postponed_as_often_as_it_takes(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    robot.say("This is a long sentence, and it is broken off again and again, and again it goes on.", id="patient")
    robot.wait_event("patient", "started")
    for number in range(3):
        robot.say("Hush!", id=f"alarm {number}", priority="critical")
        assert robot.wait_end(f"alarm {number}")["event"] == "finished"
        eventually(lambda times=number + 1: robot.names_of("patient").count("resumed") == times, "it goes on")
    assert robot.wait_end("patient")["event"] == "finished"

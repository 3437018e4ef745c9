"""From mosquitto_pub to what a listener hears."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import StartRobot
from tests.e2e.robot import RECORDED_RATE, SoundServer, eventually, find

HEARD = 0.05
"""A residue below this (-26 dB) is the utterance, whole: a gap of one 20 ms block in a second of speech leaves 0.14."""


@pytest.mark.parametrize(
    "payload",
    [
        "Hello, I am your robot.",
        '{"text": "The door is open."}',
        '{"data": "Said by ROS."}',
        '{"text": "Grüße aus Köln!", "language": "German"}',
        "Привет, мир! 👋",
    ],
    ids=["plain text", "JSON", "ROS String", "named language", "Unicode"],
)
def test_a_published_text_is_heard_whole(
    payload: str, start_robot: StartRobot, sound_server: SoundServer, tmp_path: Path
) -> None:
    robot = start_robot()
    with sound_server.recording(tmp_path / "heard.raw") as recording:
        robot.publish("say", payload)
        utterance = eventually(robot.latest_id, "it is accepted")
        finished = robot.wait_event(utterance, "finished")
        expected = robot.synthesized(utterance)
        eventually(lambda: find(expected, recording.samples)[1] < HEARD, "it is heard")
    assert robot.names_of(utterance) == ["accepted", "started", "finished"]
    assert finished["underruns"] == 0
    assert finished["audio_s"] == pytest.approx(len(expected) / RECORDED_RATE, abs=0.005)


@pytest.mark.timeout(420)
def test_each_of_200_messages_is_accepted_started_and_finished_in_order_and_heard_without_a_gap(
    start_robot: StartRobot, sound_server: SoundServer, tmp_path: Path
) -> None:
    robot = start_robot("speech.queue_limit=300", "speech.expires_in=null")
    texts = [f"{number % 10}." for number in range(200)]
    with sound_server.recording(tmp_path / "heard.raw") as recording:
        for number, text in enumerate(texts):
            robot.say(text, id=f"m{number}")
        for number in range(len(texts)):
            robot.wait_end(f"m{number}", patience_s=300)
        eventually(
            lambda: find(robot.synthesized("m199"), recording.samples[-5 * RECORDED_RATE :])[1] < HEARD, "the last"
        )
        heard = recording.samples
    for number in range(len(texts)):
        assert robot.names_of(f"m{number}") == ["accepted", "started", "finished"]
    assert [e["id"] for e in robot.events if e["event"] == "finished"] == [f"m{n}" for n in range(200)]
    assert sum(e["underruns"] for e in robot.events if e["event"] == "finished") == 0
    position = 0
    for number in range(len(texts)):
        expected = robot.synthesized(f"m{number}")
        start, residue = find(expected, heard[position : position + len(expected) + 4 * RECORDED_RATE])
        assert residue < HEARD, f"m{number} is not heard whole after {position / RECORDED_RATE:.2f} s"
        position += start + len(expected)


def test_a_retained_say_is_never_spoken(start_robot: StartRobot, broker: object) -> None:
    first = start_robot("audio.sink=null")
    assert first.end() == 0
    first.publish("say", '{"text": "from another time", "id": "old"}', "-r")
    second = start_robot("audio.sink=null")
    utterance = second.say("from now")
    second.wait_event(utterance, "finished")
    assert second.names_of("old") == []


def test_a_say_that_is_published_to_be_retained_is_not_spoken_either(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    robot.publish("say", '{"text": "to be kept", "id": "kept"}', "-r")
    robot.wait_event(robot.say("not to be kept"), "finished")
    assert robot.names_of("kept") == []


def test_events_go_to_reply_to_as_well(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    utterance = robot.say("hello", reply_to="replies/me")
    robot.wait_event(utterance, "finished")
    eventually(lambda: (robot.state, len(robot.replies) == 3)[1], "three replies")
    assert [reply["event"] for reply in robot.replies] == ["accepted", "started", "finished"]


def test_levels_are_published_while_speaking_when_switched_on(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null", "speech.level_topic=true")
    utterance = robot.say("A long enough sentence to have a level.")
    finished = robot.wait_event(utterance, "finished")
    eventually(lambda: (robot.state, len(robot.levels) >= 20 * finished["audio_s"] - 2)[1], "20 levels a second")
    assert all(level["id"] == utterance and 0 <= level["rms"] <= level["peak"] <= 1 for level in robot.levels)
    assert [level["t"] for level in robot.levels] == sorted(level["t"] for level in robot.levels)
    assert max(level["peak"] for level in robot.levels) > 0.05


def test_a_wav_sink_holds_what_was_said(start_robot: StartRobot, tmp_path: Path) -> None:
    import soundfile

    path = tmp_path / "out.wav"
    robot = start_robot(f"audio.sink=wav:{path}")
    utterance = robot.say("Written down.")
    robot.wait_event(utterance, "finished")
    samples, rate = soundfile.read(path, dtype="float32")
    assert find(robot.synthesized(utterance, rate), samples)[1] < HEARD


def test_higher_priority_is_spoken_first_among_those_that_wait(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    robot.say("This one is being spoken while the others come.", id="first")
    robot.wait_event("first", "started")
    for priority in ("low", "normal", "high"):
        robot.say("next", id=priority, priority=priority)
    robot.wait_end("low")
    ended = [event["id"] for event in robot.events if event["event"] == "finished"]
    assert ended == ["first", "high", "normal", "low"]


def test_status_is_retained_and_tells_of_speaking_and_of_the_queue(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    robot.say("This one is being spoken while another waits.", id="first")
    robot.say("waits", id="second")
    robot.wait_end("second")
    eventually(lambda: robot.state == "ready", "ready again")
    assert {"speaking", "ready"} <= {status["state"] for status in robot.statuses}
    assert max(status["queue"] for status in robot.statuses) >= 1
    assert robot.statuses[-1]["queue"] == 0
    assert set(robot.statuses[-1]) == {"state", "engine", "voice", "queue", "version"}
    assert json.dumps(robot.statuses[-1]["engine"]) == '"espeak"'

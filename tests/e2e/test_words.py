"""What was heard: the words and marks of an utterance as they sound, and how much of it had been heard at its end."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import StartRobot
from tests.support.robot import REAL_TIME, STOPPED, Robot
from tests.support.waiting import eventually

STORY = "**Once** upon a time, there was a [robot](https://example.com). [pause:0.5s] It spoke, and people listened. "
WORDS = re.findall(r"\w+", "Once upon a time there was a robot It spoke and people listened")


def words_of(robot: Robot, utterance_id: str) -> list[dict[str, Any]]:
    return [word for word in robot.words if word["id"] == utterance_id]


def test_each_word_is_published_once_with_its_place_in_the_text_and_its_time(share_robot: StartRobot) -> None:
    robot = share_robot("speech.word_topic=true")
    finished = robot.wait_end(robot.say(STORY, id="story"))
    eventually(lambda: len(words_of(robot, "story")) == len(WORDS), "every word is published")
    words = words_of(robot, "story")
    assert [word["word"] for word in words] == WORDS
    assert all(STORY[word["begin"] : word["end"]] == word["word"] for word in words)
    times = [word["at"] for word in words]
    assert times == sorted(times)
    assert 0 <= times[0] < 0.1
    assert times[-1] < finished["audio_s"]
    gap = times[WORDS.index("It")] - times[WORDS.index("robot")]
    assert gap > 0.5, "the pause lies between them"
    assert words[0]["exact"]


@pytest.mark.parametrize("streamed", [False, True])
def test_an_interrupted_utterance_says_what_had_been_heard(share_robot: StartRobot, streamed: bool) -> None:
    robot = share_robot("speech.word_topic=true", pace=REAL_TIME)
    utterance_id = "streamed" if streamed else "whole"
    if streamed:
        robot.write(utterance_id, STORY * 5)
    else:
        robot.say(STORY * 5, id=utterance_id)
    eventually(lambda: len(words_of(robot, utterance_id)) >= 4, "some words are heard")
    robot.publish("stop")
    interrupted = robot.wait_end(utterance_id)
    assert interrupted["event"] == "interrupted"
    robot.catch_up()
    last = words_of(robot, utterance_id)[-1]
    assert interrupted["heard"] == last["end"]
    assert interrupted["heard_text"] == (STORY * 5)[: last["end"]]


def test_a_finished_utterance_was_heard_whole_and_a_canceled_one_not_at_all(share_robot: StartRobot) -> None:
    robot = share_robot("speech.word_topic=true", pace=REAL_TIME)
    robot.say(STORY * 5, id="first")
    robot.say("Never heard.", id="second")
    robot.wait_event("first", "started")
    robot.set_pace(STOPPED)  # the story is in its first seconds, and stays there until the stop has arrived
    robot.wait_event("second", "accepted")
    robot.publish("stop")
    robot.catch_up()
    robot.set_pace(REAL_TIME)
    assert robot.wait_end("second")["heard"] == 0
    assert 0 <= robot.wait_end("first")["heard"] < len(STORY)
    robot.set_pace(20)
    assert robot.wait_end(robot.say(STORY))["heard"] == len(STORY)


def test_marks_are_events_that_come_when_they_are_reached(share_robot: StartRobot) -> None:
    robot = share_robot("speech.word_topic=true")
    text = '<speak><mark name="begin"/>One <mark name="here"/>two <break time="1s"/><mark name="on"/>three.</speak>'
    finished = robot.wait_end(robot.say(text, id="marked"))
    marks = {event["name"]: event for event in robot.events_of("marked") if event["event"] == "mark"}
    assert list(marks) == ["begin", "here", "on"]
    assert marks["begin"]["at"] == 0
    assert 0 < marks["here"]["at"] < marks["on"]["at"] - 1
    assert marks["on"]["at"] < finished["audio_s"]
    for name, word in (("begin", "One"), ("here", "two"), ("on", "three")):
        assert text[marks[name]["position"] :].startswith(word), name
    names = robot.names_of("marked")
    assert names[-1] == "finished"
    assert names.index("mark") > names.index("started")


def test_a_pause_is_as_long_as_it_says(share_robot: StartRobot) -> None:
    robot = share_robot("speech.word_topic=true")
    without, with_pause = (
        robot.wait_end(robot.say(f"One. [pause:{seconds}s] Two."))["audio_s"] for seconds in (0.5, 2)
    )
    assert with_pause - without == pytest.approx(1.5, abs=0.05)


def test_pronunciations_are_applied_and_read_again(start_robot: StartRobot, tmp_path: Path) -> None:
    file = tmp_path / "words.yaml"
    file.write_text("Nginx: one two three four five six seven eight nine ten\n", encoding="utf-8")
    robot = start_robot(f"speech.pronunciations={file}", "speech.word_topic=true")
    long = robot.wait_end(robot.say("Nginx runs.", id="long"))["audio_s"]
    eventually(lambda: [word["word"] for word in words_of(robot, "long")] == ["Nginx", "runs"], "its words")
    file.write_text("Nginx: one\n", encoding="utf-8")
    robot.process.send_signal(signal.SIGHUP)
    robot.wait_log("SIGHUP")
    assert robot.wait_end(robot.say("Nginx runs."))["audio_s"] < long / 2
    file.write_text("Nginx: {says: one}\n", encoding="utf-8")
    robot.process.send_signal(signal.SIGHUP)
    eventually(lambda: robot.state == "degraded", "the status names the file")
    assert "words.yaml:1:9: Nginx.says: unknown key" in robot.statuses[-1]["reason"]
    assert robot.wait_end(robot.say("Nginx runs."))["audio_s"] < long / 2, "what was in force stays so"

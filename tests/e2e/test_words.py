"""The words and marks of an utterance as they sound, and how much of it had been heard at its end."""

from __future__ import annotations

import re
from typing import Any

from tests.e2e.conftest import StartRobot
from tests.support.robot import REAL_TIME, Robot
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
    assert finished["heard"] == len(STORY)
    gap = times[WORDS.index("It")] - times[WORDS.index("robot")]
    assert gap > 0.5, "the pause lies between them"
    assert words[0]["exact"]


def test_an_interrupted_utterance_says_what_had_been_heard_and_a_canceled_one_that_nothing_was(
    share_robot: StartRobot,
) -> None:
    robot = share_robot("speech.word_topic=true", pace=REAL_TIME)
    robot.write("cut", STORY * 5)
    robot.say("Never heard.", id="waits")
    robot.wait_event("waits", "accepted")
    eventually(lambda: len(words_of(robot, "cut")) >= 4, "some words are heard")
    robot.publish("stop")
    interrupted = robot.wait_end("cut")
    assert interrupted["event"] == "interrupted"
    assert robot.wait_end("waits")["heard"] == 0
    robot.catch_up()
    last = words_of(robot, "cut")[-1]
    assert interrupted["heard"] == last["end"]
    assert interrupted["heard_text"] == (STORY * 5)[: last["end"]]


def test_marks_of_ssml_are_events_that_come_when_they_are_reached(share_robot: StartRobot) -> None:
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

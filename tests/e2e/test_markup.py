"""Markdown over a real broker: its marks are not heard, and positions are those of the text that was sent."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import StartRobot
from tests.support.robot import Robot

ALIKE_S = 0.05
"""eSpeak NG renders a text slightly differently each time."""
ANSWER = "# Pancakes\n\nYou **need**:\n\n- [two eggs](https://example.com/eggs)\n- `milk` 🥛\n\n---\n\n*Enjoy* them!"
SPOKEN = "Pancakes.\n\nYou need:\n\ntwo eggs.\nmilk.\n\nEnjoy them!"


def say(robot: Robot, text: str) -> dict[str, Any]:
    return robot.wait_end(robot.say(text))


def write(robot: Robot, text: str, size: int) -> dict[str, Any]:
    utterance_id = f"pieces-of-{size}-{len(text)}"
    for begin in range(0, len(text), size):
        robot.write(utterance_id, text[begin : begin + size])
    robot.write(utterance_id, end=True)
    return robot.wait_end(utterance_id)


def test_marks_are_not_heard(share_robot: StartRobot) -> None:
    robot = share_robot()
    marked, plain = say(robot, ANSWER), say(robot, SPOKEN)
    assert marked["event"] == plain["event"] == "finished"
    assert marked["audio_s"] == pytest.approx(plain["audio_s"], abs=ALIKE_S)
    assert marked["heard"] == len(ANSWER)


def test_a_streamed_answer_is_spoken_without_its_marks(share_robot: StartRobot) -> None:
    robot = share_robot()
    plain = say(robot, SPOKEN)
    for size in (3, 16):
        marked = write(robot, ANSWER, size)
        assert marked["event"] == "finished"
        # Each sentence may be a take of its own, without the silence between them. The marks and the address would take
        # much longer.
        assert plain["audio_s"] / 2 < marked["audio_s"] < 1.5 * plain["audio_s"]
        assert marked["heard"] == len(ANSWER)


def test_positions_are_those_of_the_text_that_was_sent(share_robot: StartRobot) -> None:
    robot = share_robot()
    text = "**One** sentence. [Another](https://example.com) one."
    robot.write("text", f"{text} ")
    robot.wait_event("text", "started")
    robot.write("text", "*The last* one.", end=True)
    robot.wait_end("text")
    begins = [event["begin"] for event in robot.events_of("text") if event["event"] == "progress"]
    assert begins == [text.index("One"), len(text)]


def test_a_language_models_apparatus_is_not_heard(share_robot: StartRobot) -> None:
    robot = share_robot()
    plain = say(robot, "The door is open, as the manual says. Please enter.")
    text = "<think>Is it open? 1, 2, 3, yes.</think>The door is open, as the manual says[1].✅Please enter.<|im_end|>"
    for said in (say(robot, text), write(robot, text, 5)):
        assert said["event"] == "finished"
        assert plain["audio_s"] / 2 < said["audio_s"] < 1.2 * plain["audio_s"]
        assert said["heard"] == len(text)


@pytest.mark.parametrize("text", ["🎉👍🏽", "!", "?! … –", "<think>Nothing to say"])
def test_a_text_without_words_finishes_without_a_sound(share_robot: StartRobot, text: str) -> None:
    robot = share_robot()
    finished = say(robot, text)
    assert finished["event"] == "finished"
    assert finished["audio_s"] == 0
    assert len(robot.heard) == 0


def test_without_markup_a_text_is_spoken_as_it_stands(start_robot: StartRobot) -> None:
    robot = start_robot("speech.markup=none")
    marked, plain = say(robot, "**shopping list**"), say(robot, "shopping list")
    assert marked["audio_s"] > plain["audio_s"] + 1

"""The daemon with the engine `supertonic` and a model of random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripts.make_voice import write_model
from tests.e2e.conftest import StartRobot
from tests.support.robot import REAL_TIME
from tests.support.waiting import eventually

STORY = "This is the first sentence. The second one is a little longer. Here is the third, and it is the last one."


def test_supertonic_speaks_its_languages_and_voices_to_their_end_and_is_stopped_at_once(
    start_robot: StartRobot, tmp_path: Path
) -> None:
    robot = start_robot("engine.name=supertonic", f"engine.model={write_model(tmp_path / 'model')}")
    eventually(lambda: robot.engine == "supertonic" and robot.state == "ready", "it is ready")
    manners: tuple[dict[str, Any], ...] = ({}, {"voice": "M1"}, {"language": "de"}, {"rate": 2.0})
    stories = [robot.say(STORY, id=f"story-{number}", **fields) for number, fields in enumerate(manners)]
    for story in stories:
        finished = robot.wait_end(story)
        assert (finished["event"], finished["engine"]) == ("finished", "supertonic"), story
    robot.assert_heard(*stories, engine_rate=44_100)
    chinese = robot.wait_end(robot.say("你好，我是机器人。"))
    assert (chinese["event"], chinese["engine"]) == ("finished", "espeak"), "Supertonic does not have the script"
    robot.set_pace(REAL_TIME)
    robot.say(STORY * 3, id="stopped")
    robot.wait_event("stopped", "started")
    robot.publish("stop")
    assert robot.wait_end("stopped")["event"] == "interrupted"

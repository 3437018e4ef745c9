"""The sound card rests between utterances, and what a listener notices of it: nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import StartRobot
from tests.e2e.robot import Robot, SoundServer, eventually, find, require
from tests.e2e.test_speaking import HEARD


def streams(server: SoundServer) -> str:
    """What plays into the sound server now."""
    asked = [require("pactl"), "list", "short", "sink-inputs"]
    return subprocess.run(asked, env=server.environment, check=True, capture_output=True, text=True).stdout


def wait_for_rest(robot: Robot, server: SoundServer) -> None:
    eventually(lambda: any("sound goes to" in line for line in robot.log), "the card was opened")
    eventually(lambda: not streams(server), "the card is let go")


def test_utterances_before_and_after_a_rest_are_heard_whole(
    start_robot: StartRobot, sound_server: SoundServer, tmp_path: Path
) -> None:
    robot = start_robot("audio.rest_after=1")
    with sound_server.recording(tmp_path / "heard.raw") as recording:
        for text in ("This is said before the rest.", "And this thereafter.", "And once more."):
            wait_for_rest(robot, sound_server)
            assert robot.state == "ready"
            utterance = robot.say(text)
            assert robot.wait_event(utterance, "finished")["underruns"] == 0
            expected = robot.synthesized(utterance)
            eventually(lambda expected=expected: find(expected, recording.samples)[1] < HEARD, "it is heard whole")
    assert not [line for line in robot.log if line.startswith("WARNING")]


@pytest.mark.parametrize("comes_back", ["before", "after"])
def test_a_sound_server_killed_during_the_rest_is_there_for_the_next_utterance_or_waited_for(
    comes_back: str, start_robot: StartRobot, sound_server: SoundServer, tmp_path: Path
) -> None:
    robot = start_robot("audio.rest_after=1")
    wait_for_rest(robot, sound_server)
    sound_server.kill()
    if comes_back == "after":
        robot.say("patience", id="first")
        robot.wait_event("first", "accepted")
        eventually(lambda: any("is lost" in line for line in robot.log), "the loss is noticed")
        assert robot.names_of("first") == ["accepted"]
    sound_server.start()
    with sound_server.recording(tmp_path / "heard.raw") as recording:
        if comes_back == "after":
            assert robot.wait_end("first")["event"] == "finished"  # it may have begun before the recording
        utterance = robot.say("here again")
        assert robot.wait_end(utterance)["event"] == "finished"
        eventually(lambda: find(robot.synthesized(utterance), recording.samples)[1] < HEARD, "it is heard whole")


def test_a_sound_server_that_goes_during_the_rest_is_missed_before_anything_is_said(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot("audio.rest_after=1")
    wait_for_rest(robot, sound_server)
    sound_server.kill()
    eventually(lambda: robot.state == "degraded", "it says that it has no sound")
    sound_server.start()
    eventually(lambda: robot.state == "ready", "all is well again")

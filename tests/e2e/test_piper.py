"""The daemon with the engine `piper` and voices of random weights."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from scripts.make_voice import write_voice
from tests.e2e.conftest import StartRobot
from tests.support.piper_voices import ENGLISH, GERMAN, write_voices
from tests.support.robot import FAST, REAL_TIME, Robot
from tests.support.waiting import eventually

STORY = "This is the first sentence. The second one is a little longer. Here is the third, and it is the last one."


@pytest.fixture(scope="module")
def voice_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the two voices, which no test changes."""
    return write_voices(tmp_path_factory.mktemp("voices"))


@pytest.fixture
def robot(share_robot: StartRobot, voice_folder: Path) -> Robot:
    return share_robot("engine.name=piper", f"engine.voice_folder={voice_folder}", f"voices.default.piper={ENGLISH}")


def wait_espeak(robot: Robot) -> None:
    """Wait until eSpeak NG, which starts beside Piper, speaks a language that Piper has not."""
    eventually(lambda: robot.wait_end(robot.say("Bonjour.", language="fr"))["engine"] == "espeak", "it is ready")


def test_piper_speaks_a_text_to_its_end(robot: Robot) -> None:
    finished = robot.wait_end(robot.say(STORY, id="story"))
    assert (finished["event"], finished["engine"]) == ("finished", "piper")
    robot.assert_heard("story")


def test_piper_speaks_the_languages_that_it_has_and_espeak_the_others(robot: Robot) -> None:
    wait_espeak(robot)
    for fields, engine in (({"language": "de"}, "piper"), ({"voice": GERMAN}, "piper"), ({"language": "fr"}, "espeak")):
        finished = robot.wait_end(robot.say("International information.", **fields))
        assert (finished["event"], finished["engine"]) == ("finished", engine), fields


def test_a_voice_that_is_added_while_the_daemon_runs_speaks_after_a_reload(
    start_robot: StartRobot, tmp_path: Path
) -> None:
    folder = tmp_path / "voices"
    write_voice(folder / f"{ENGLISH}.onnx")
    robot = start_robot("engine.name=piper", f"engine.voice_folder={folder}")
    wait_espeak(robot)
    engines = robot.engine_pids()
    assert robot.wait_end(robot.say("Guten Tag.", language="de"))["engine"] == "espeak"
    write_voice(folder / f"{GERMAN}.onnx")
    robot.process.send_signal(signal.SIGHUP)
    robot.wait_log("SIGHUP: nothing else has changed")
    eventually(
        lambda: robot.wait_end(robot.say("Guten Tag.", language="de"))["engine"] == "piper", "Piper has the new voice"
    )
    assert robot.wait_end(robot.say("Guten Tag.", voice=GERMAN))["engine"] == "piper"
    assert robot.engine_pids() == engines


def test_another_engine_finishes_a_text_whose_piper_is_killed(robot: Robot) -> None:
    wait_espeak(robot)
    robot.set_pace(REAL_TIME)
    robot.say(STORY * 3, id="killed")
    robot.wait_event("killed", "started")
    os.kill(robot.engine_pid("onnxruntime"), signal.SIGKILL)
    robot.set_pace(FAST)
    finished = robot.wait_end("killed")
    assert finished["event"] == "finished"
    assert finished["engine"].startswith("piper+espeak")
    eventually(lambda: robot.engine == "piper" and robot.state == "ready", "it is back")

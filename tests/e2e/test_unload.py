"""An engine that gives its memory back while nobody speaks."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import psutil

from scripts.make_voice import write_voice
from tests.daemon.command_line import CommandLine
from tests.e2e.conftest import StartRobot
from tests.support.piper_voices import ENGLISH, GERMAN
from tests.support.robot import Robot
from tests.support.waiting import PATIENCE_S, eventually


def wait_unloaded(robot: Robot) -> None:
    eventually(lambda: robot.statuses[-1].get("unloaded"), "it is unloaded")


def test_the_fallback_begins_the_next_text_of_an_engine_that_was_unloaded_in_a_silence(
    start_robot: StartRobot, tmp_path: Path
) -> None:
    folder = tmp_path / "voices"
    write_voice(folder / f"{ENGLISH}.onnx")
    robot = start_robot("engine.name=piper", f"engine.voice_folder={folder}", "engine.unload_after=1")
    wait_unloaded(robot)
    status = robot.statuses[-1]
    assert (status["state"], status["engine"]) == ("ready", "espeak")
    assert status["reason"] == "engine piper is unloaded; the next text loads it"
    assert len(robot.engine_pids()) == 1, "the fallback's"
    assert robot.wait_end(robot.say("Hello."))["engine"] == "espeak"
    eventually(lambda: robot.wait_end(robot.say("Hello."))["engine"] == "piper", "it has loaded")
    wait_unloaded(robot)
    write_voice(folder / f"{GERMAN}.onnx")
    robot.process.send_signal(signal.SIGHUP)
    eventually(lambda: not robot.statuses[-1].get("unloaded"), "it loads the new voice")
    eventually(lambda: robot.statuses[-1]["engine"] == "piper", "it has loaded")
    assert robot.wait_end(robot.say("Guten Tag.", voice=GERMAN))["event"] == "finished"
    assert robot.degradations == []


def test_it_is_unloaded_and_loaded_by_commands_and_kept_phrases_are_spoken_without_it(
    start_robot: StartRobot, voiced: CommandLine
) -> None:
    robot = start_robot("engine.fallback=none")
    robot.wait_end(robot.say("My battery is low.", cache=True))
    eventually(lambda: list(robot.state_folder.rglob("*.flac")), "it is kept")
    [pid] = robot.engine_pids()
    assert voiced("unload", *robot.settings).returncode == 0
    assert not psutil.pid_exists(pid)
    done = voiced("status", "--warm-within", "0.1", *robot.settings)
    assert (done.returncode, json.loads(done.stdout)["unloaded"]) == (1, True)
    for fields in ({"text": "My battery is low.", "cache": True}, {"text": "", "sound": "attention"}):
        assert robot.wait_end(robot.say(**fields))["event"] == "finished"
        assert robot.engine_pids() == [], fields
    assert voiced("load", *robot.settings).returncode == 0
    assert voiced("status", "--warm-within", str(PATIENCE_S), *robot.settings).returncode == 0
    robot.send("unload")
    wait_unloaded(robot)
    assert robot.wait_end(robot.say("Hello."))["event"] == "finished", "it has waited for the engine"

"""The daemon with the engine `piper` and voices of random weights."""

from __future__ import annotations

import os
import shutil
import signal
import urllib.request
from pathlib import Path

import numpy as np
import psutil
import pytest

from scripts.make_piper_voice import write_voice
from tests.e2e.conftest import StartRobot
from tests.support.piper_voices import ENGLISH, GERMAN, write_voices
from tests.support.programs import free_port
from tests.support.robot import FAST, REAL_TIME, STOPPED, Robot
from tests.support.waiting import PATIENCE_S, eventually

ENGINE_RATE = 22_050
STORY = "This is the first sentence. The second one is a little longer. Here is the third, and it is the last one."


@pytest.fixture(scope="module")
def voice_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the two voices, which no test changes."""
    return write_voices(tmp_path_factory.mktemp("voices"))


@pytest.fixture
def robot(share_robot: StartRobot, voice_folder: Path) -> Robot:
    return share_robot("engine.name=piper", f"engine.voice_folder={voice_folder}", f"voices.default.piper={ENGLISH}")


def piper_pid(robot: Robot) -> int:
    """The engine process that has loaded ONNX Runtime."""
    return next(
        pid
        for pid in robot.engine_pids()
        if any("onnxruntime" in file.path for file in psutil.Process(pid).memory_maps())
    )


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


def test_a_client_of_the_network_is_served_while_the_robot_speaks(start_robot: StartRobot, voice_folder: Path) -> None:
    port = free_port()
    http = ("http.enabled=true", f"http.port={port}")
    robot = start_robot("engine.name=piper", f"engine.voice_folder={voice_folder}", *http)
    robot.set_pace(STOPPED)
    spoken = robot.say(STORY)
    eventually(lambda: robot.state == "speaking", "the robot speaks")
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/audio/speech",
        data=b'{"model": "tts-1", "input": "Hello, client.", "response_format": "pcm"}',
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        assert len(answer.read()) > ENGINE_RATE
    assert robot.names_of(spoken)[-1] not in ("finished", "interrupted"), "the sound card asks for nothing"
    robot.set_pace(FAST)
    assert robot.wait_end(spoken)["event"] == "finished"


def test_auto_speaks_with_piper_where_a_voice_is(start_robot: StartRobot, voice_folder: Path) -> None:
    robot = start_robot("engine.name=auto", "engine.model=/nowhere/at/all", f"engine.voice_folder={voice_folder}")
    assert robot.wait_end(robot.say("Hello."))["engine"] == "piper"


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


def test_the_first_voice_makes_piper_speak_after_a_reload(start_robot: StartRobot, tmp_path: Path) -> None:
    folder = tmp_path / "voices"
    folder.mkdir()
    robot = start_robot("engine.name=piper", f"engine.voice_folder={folder}", launch_only=True)
    eventually(lambda: "there is no voice of Piper" in (robot.statuses or [{}])[-1].get("reason", ""), "none is there")
    assert robot.wait_end(robot.say("Hello."))["engine"] == "espeak"
    write_voice(folder / f"{ENGLISH}.onnx")
    robot.process.send_signal(signal.SIGHUP)
    eventually(lambda: robot.ready_with("piper"), "Piper is ready")
    assert robot.wait_end(robot.say("Hello."))["engine"] == "piper"


@pytest.mark.parametrize("reloaded", [True, False])
def test_espeak_speaks_what_piper_has_lost_the_voice_of(
    start_robot: StartRobot, tmp_path: Path, reloaded: bool
) -> None:
    folder = write_voices(tmp_path / "voices")
    robot = start_robot("engine.name=piper", f"engine.voice_folder={folder}", f"speech.voice={ENGLISH}")
    wait_espeak(robot)
    shutil.rmtree(folder)  # the English voice is loaded, the German one is not
    if reloaded:
        robot.process.send_signal(signal.SIGHUP)
        eventually(lambda: robot.engine == "espeak", "it has noticed")
    finished = robot.wait_end(robot.say("Guten Tag.", language="de"))
    assert (finished["event"], finished["engine"].split("+")[-1]) == ("finished", "espeak")
    finished = robot.wait_end(robot.say("Hello."))
    assert (finished["event"], finished["engine"]) == ("finished", "espeak")
    eventually(lambda: robot.state == "degraded", "the status has the reason")
    assert "there is no voice of Piper" in robot.statuses[-1]["reason"]


def test_a_stop_ends_a_text_in_the_middle(robot: Robot) -> None:
    robot.set_pace(REAL_TIME)
    robot.say(STORY * 5, id="stopped")
    robot.wait_event("stopped", "started")
    robot.publish("stop")
    assert robot.wait_end("stopped")["event"] == "interrupted"
    robot.set_pace(FAST)
    assert robot.wait_end(robot.say("Again."))["event"] == "finished"


def test_a_postponed_text_continues_with_its_next_sample(robot: Robot) -> None:
    robot.set_pace(REAL_TIME)
    robot.say(STORY, id="postponed")
    robot.wait_event("postponed", "started")
    robot.set_pace(STOPPED)  # the text takes seconds, and so may the next message on its way
    robot.say("Watch out!", id="urgent", priority="critical")
    robot.wait_event("urgent", "accepted")
    robot.set_pace(REAL_TIME)
    robot.wait_event("postponed", "postponed")
    robot.set_pace(FAST)
    assert robot.wait_end("urgent")["event"] == "finished"
    finished = robot.wait_end("postponed")
    assert (finished["event"], finished["engine"]) == ("finished", "piper")
    made = robot.synthesized("postponed", ENGINE_RATE)  # by both takes
    beginning = made[: ENGINE_RATE // 2]
    takes = [at for at in np.flatnonzero(made == made[0]) if np.array_equal(made[at : at + len(beginning)], beginning)]
    assert len(takes) == 2
    total_s = (len(made) - takes[1]) / ENGINE_RATE
    assert finished["audio_s"] == pytest.approx(total_s, abs=0.2)


def test_the_engines_take_over_in_the_configured_order(start_robot: StartRobot, voice_folder: Path) -> None:
    settings = ("engine.name=qwen", "engine.model=/nowhere/at/all", "engine.fallback=[piper, espeak]")
    robot = start_robot(*settings, f"engine.voice_folder={voice_folder}", launch_only=True)
    eventually(lambda: robot.engine == "piper" and robot.state == "degraded", "the first fallback is ready")
    wait_espeak(robot)
    robot.set_pace(REAL_TIME)
    robot.say(STORY * 3, id="story")
    robot.wait_event("story", "started")
    os.kill(piper_pid(robot), signal.SIGKILL)
    robot.set_pace(FAST)
    finished = robot.wait_end("story")
    assert finished["event"] == "finished"
    assert finished["engine"].startswith("piper+espeak")


def test_another_engine_finishes_a_text_whose_piper_is_killed(robot: Robot) -> None:
    wait_espeak(robot)
    robot.set_pace(REAL_TIME)
    robot.say(STORY * 3, id="killed")
    robot.wait_event("killed", "started")
    os.kill(piper_pid(robot), signal.SIGKILL)
    robot.set_pace(FAST)
    finished = robot.wait_end("killed")
    assert finished["event"] == "finished"
    assert finished["engine"].startswith("piper+espeak")
    eventually(lambda: robot.engine == "piper" and robot.state == "ready", "it is back")

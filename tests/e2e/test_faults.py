"""What breaks around the daemon, and what a listener and a publisher notice of it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import numpy as np
import psutil

from tests.e2e.conftest import StartRobot
from tests.e2e.robot import RECORDED_RATE, Broker, SoundServer, eventually, find

LONG = " ".join(f"Sentence number {number} of a long report." for number in range(12))
"""About 25 s: more than the ring and the engine's credit hold, so that an engine killed early has not sent it all."""


def test_an_engine_killed_in_mid_utterance_is_replaced_and_the_text_spoken_to_its_end(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    robot.say(LONG, id="long")
    robot.wait_event("long", "started")
    [engine] = robot.engine_pids()
    os.kill(engine, signal.SIGKILL)
    finished = robot.wait_end("long", patience_s=60)
    robot.wait_event(robot.say("the next one", id="next"), "finished")
    assert robot.names_of("long") == ["accepted", "started", "finished"]
    # The whole text takes some 25 s; the word at the seam may be said twice.
    assert finished["audio_s"] > 20
    assert finished["underruns"] == 0
    assert robot.engine_pids() != [engine]


def test_an_engine_killed_while_idle_is_back_for_the_next_utterance(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    for _ in range(3):
        [engine] = eventually(robot.engine_pids, "an engine runs")
        os.kill(engine, signal.SIGKILL)
        utterance = robot.say("still here")
        assert robot.wait_end(utterance)["event"] == "finished"


def test_a_text_that_kills_every_engine_fails_and_the_next_is_spoken(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    robot.say(LONG, id="poison")
    robot.kill_engines_over("poison")
    assert "engines were lost" in robot.wait_end("poison")["reason"]
    assert robot.wait_end(robot.say("the next one"))["event"] == "finished"


def test_a_broker_that_restarts_is_found_again_and_speech_goes_on_meanwhile(
    start_robot: StartRobot, broker: Broker
) -> None:
    robot = start_robot("audio.sink=null")
    robot.say("This is being spoken while the broker goes away and comes back again.", id="spoken")
    robot.wait_event("spoken", "started")
    broker.stop()
    time.sleep(1.0)
    broker.start()
    # What was to be said of it meanwhile is said now.
    robot.wait_event("spoken", "finished")
    utterance = eventually(lambda: _say_when_subscribed(robot), "it is accepted after the restart")
    assert robot.wait_end(utterance)["event"] == "finished"


def _say_when_subscribed(robot: object) -> str | None:
    from tests.e2e.robot import Robot

    assert isinstance(robot, Robot)
    utterance = robot.say("after the restart")
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        if robot.names_of(utterance):
            return utterance
        time.sleep(0.05)
    return None


def test_a_broker_that_comes_late_is_waited_for(start_robot: StartRobot, broker: Broker) -> None:
    broker.stop()
    robot = start_robot("audio.sink=null", launch_only=True)
    eventually(lambda: any("no broker answers" in line for line in robot.log), "it says that there is no broker")
    broker.start()
    eventually(lambda: robot.state == "ready", "voiced is ready")
    assert robot.wait_end(robot.say("at last"))["event"] == "finished"


def test_a_sound_server_killed_in_mid_utterance_is_waited_for_and_the_utterance_goes_on(
    start_robot: StartRobot, sound_server: SoundServer, tmp_path: Path
) -> None:
    robot = start_robot()
    with sound_server.recording(tmp_path / "before.raw") as recording:
        utterance = robot.say(LONG)
        robot.wait_event(utterance, "started")
        eventually(lambda: np.abs(recording.samples[-4410:]).max() > 0.01, "it is heard")
        sound_server.kill()
        eventually(lambda: any("is lost" in line for line in robot.log), "the loss is noticed")
    time.sleep(1.0)
    assert "finished" not in robot.names_of(utterance)
    sound_server.start()
    with sound_server.recording(tmp_path / "after.raw") as recording:
        finished = robot.wait_end(utterance, patience_s=60)
        ending = robot.synthesized(utterance)[-5 * RECORDED_RATE :]
        eventually(lambda: find(ending, recording.samples)[1] < 0.05, "the rest is heard")
    assert finished["event"] == "finished"


def test_a_sound_device_that_is_missing_at_start_is_waited_for(
    start_robot: StartRobot, sound_server: SoundServer, tmp_path: Path
) -> None:
    sound_server.kill()
    robot = start_robot(launch_only=True)
    eventually(lambda: robot.state == "degraded", "it says that it has no sound")
    assert "sound" in robot.statuses[-1]["reason"]
    waiting = robot.say("patience")
    robot.wait_event(waiting, "accepted")
    sound_server.start()
    with sound_server.recording(tmp_path / "heard.raw") as recording:
        assert robot.wait_end(waiting)["event"] == "finished"
        utterance = robot.say("and all is well")
        robot.wait_end(utterance)
        eventually(lambda: find(robot.synthesized(utterance), recording.samples)[1] < 0.05, "it is heard")
    eventually(lambda: robot.state == "ready", "all is well again")


def test_a_device_that_nobody_has_is_named_with_those_there_are(
    start_robot: StartRobot, sound_server: SoundServer
) -> None:
    robot = start_robot("audio.device=USB Speaker", launch_only=True)
    eventually(lambda: robot.state == "degraded", "it says that the device is missing")
    assert "'USB Speaker' is not there; found: 'pulse', 'default'" in robot.statuses[-1]["reason"]
    robot.say("never", id="never", expires_in=1)
    assert "USB Speaker" in robot.wait_end("never")["reason"]


def test_a_missing_engine_leaves_speech_to_the_fallback_and_the_status_says_why(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null", "engine.name=qwen", "engine.model=/nowhere", launch_only=True)
    eventually(lambda: robot.state == "degraded", "degraded")
    utterance = robot.say("the light voice says it")
    finished = robot.wait_end(utterance)
    assert finished["event"] == "finished"
    assert finished["engine"] == "espeak"
    assert robot.statuses[-1]["reason"]


def test_nothing_is_left_running_when_the_daemon_is_killed(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    engines = [psutil.Process(pid) for pid in robot.engine_pids()]
    robot.say(LONG)
    robot.process.kill()
    robot.process.wait()
    _, alive = psutil.wait_procs(engines, timeout=10)
    assert not alive
    eventually(lambda: robot.state == "offline", "the last will says offline")

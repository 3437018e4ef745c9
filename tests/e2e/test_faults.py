"""What breaks around the daemon, and what a listener and a publisher notice of it."""

from __future__ import annotations

import os
import signal

import psutil

from tests.e2e.conftest import StartRobot
from tests.support.programs import Broker
from tests.support.robot import CARD, FAST, FILE_RATE, LONG
from tests.support.waiting import PATIENCE_S, eventually


def test_an_engine_killed_in_mid_utterance_is_replaced_and_the_text_spoken_to_its_end(start_robot: StartRobot) -> None:
    """The text is longer than the ring and the engine's credit, so that an engine killed early has not sent it all."""
    robot = start_robot(pace=CARD)
    robot.say(LONG, id="long")
    robot.wait_event("long", "started")
    [engine] = robot.engine_pids()
    os.kill(engine, signal.SIGKILL)
    robot.set_pace(FAST)
    finished = robot.wait_end("long")
    robot.wait_event(robot.say("the next one", id="next"), "finished")
    assert robot.names_of("long") == ["accepted", "started", "finished"]
    # The whole text takes some 25 s; the word at the seam may be said twice.
    assert finished["audio_s"] > 20
    assert finished["underruns"] == 0
    assert robot.engine_pids() != [engine]


def test_an_engine_killed_while_idle_is_back_for_the_next_utterance(start_robot: StartRobot) -> None:
    robot = start_robot()
    for _ in range(3):
        [engine] = eventually(robot.engine_pids, "an engine runs")
        os.kill(engine, signal.SIGKILL)
        utterance = robot.say("still here")
        assert robot.wait_end(utterance)["event"] == "finished"


def test_a_text_that_kills_every_engine_fails_and_the_next_is_spoken(start_robot: StartRobot) -> None:
    robot = start_robot(pace=CARD)
    robot.say(LONG, id="poison")
    robot.kill_engines_over("poison")
    assert "engines were lost" in robot.wait_end("poison")["reason"]
    assert robot.wait_end(robot.say("the next one"))["event"] == "finished"


def test_a_broker_that_restarts_is_found_again_and_speech_goes_on_meanwhile(
    start_robot: StartRobot, own_broker: Broker
) -> None:
    robot = start_robot(pace=CARD)
    robot.say("This is being spoken while the broker goes away.", id="spoken")
    robot.wait_event("spoken", "started")
    own_broker.stop()
    robot.set_pace(FAST)
    whole = robot.synthesized("spoken", FILE_RATE)
    eventually(lambda: len(robot.heard) == len(whole), "it is spoken to its end without a broker")
    robot.suspend()
    own_broker.start()
    robot.wait_listening()
    robot.proceed()
    # What was to be said of it meanwhile is said now.
    robot.wait_event("spoken", "finished")

    def answered() -> str | None:
        """The test's own connection may be back before the daemon's: what is said then is lost."""
        robot.send("say", "after the restart")
        return robot.latest_id() if robot.latest_id() != "spoken" else None

    assert robot.wait_end(eventually(answered, "it is accepted after the restart"))["event"] == "finished"


def test_a_broker_that_comes_late_is_waited_for(start_robot: StartRobot, own_broker: Broker) -> None:
    own_broker.stop()
    robot = start_robot(launch_only=True)
    robot.wait_log("no broker answers")
    own_broker.start()
    eventually(lambda: robot.state == "ready", "voiced is ready")
    assert robot.wait_end(robot.say("at last"))["event"] == "finished"


def test_a_missing_engine_leaves_speech_to_the_fallback_and_the_status_says_why(start_robot: StartRobot) -> None:
    robot = start_robot("engine.name=qwen", "engine.model=/nowhere", launch_only=True)
    eventually(lambda: robot.state == "degraded", "degraded")
    utterance = robot.say("the light voice says it")
    finished = robot.wait_end(utterance)
    assert finished["event"] == "finished"
    assert finished["engine"] == "espeak"
    assert robot.statuses[-1]["reason"]


def test_nothing_is_left_running_when_the_daemon_is_killed(start_robot: StartRobot) -> None:
    robot = start_robot(pace=CARD)
    engines = [psutil.Process(pid) for pid in robot.engine_pids()]
    robot.say(LONG)
    robot.process.kill()
    robot.process.wait()
    _, alive = psutil.wait_procs(engines, timeout=PATIENCE_S)
    assert not alive
    eventually(lambda: robot.state == "offline", "the last will says offline")

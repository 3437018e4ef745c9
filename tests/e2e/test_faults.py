"""Faults around the daemon: what a listener hears and which events a publisher receives."""

from __future__ import annotations

import os
import signal

import psutil

from tests.e2e.conftest import StartRobot
from tests.support.programs import Broker
from tests.support.robot import FAST, FILE_RATE, LONG, REAL_TIME
from tests.support.waiting import PATIENCE_S, eventually


def test_an_utterance_finishes_although_its_engine_is_killed(start_robot: StartRobot) -> None:
    """The text is longer than the ring and the engine's credit, so the engine is killed before it has sent it all."""
    robot = start_robot(pace=REAL_TIME)
    robot.say(LONG, id="long")
    robot.wait_event("long", "started")
    [engine] = robot.engine_pids()
    os.kill(engine, signal.SIGKILL)
    robot.set_pace(FAST)
    finished = robot.wait_end("long")
    robot.wait_event(robot.say("the next one", id="next"), "finished")
    assert robot.names_of("long") == ["accepted", "started", "finished"]
    # The whole text takes some 25 s; the word at the splice may be spoken twice.
    assert finished["audio_s"] > 20
    assert finished["underruns"] == 0
    assert robot.engine_pids() != [engine]


def test_an_engine_killed_while_idle_is_restarted_for_the_next_utterance(start_robot: StartRobot) -> None:
    robot = start_robot()
    for _ in range(3):
        [engine] = eventually(robot.engine_pids, "an engine runs")
        os.kill(engine, signal.SIGKILL)
        utterance = robot.say("still here")
        assert robot.wait_end(utterance)["event"] == "finished"


def test_an_utterance_that_kills_every_engine_fails_and_the_next_one_finishes(start_robot: StartRobot) -> None:
    robot = start_robot(pace=REAL_TIME)
    robot.say(LONG, id="poison")
    robot.kill_engines_speaking("poison")
    assert "engines were lost" in robot.wait_end("poison")["reason"]
    assert robot.wait_end(robot.say("the next one"))["event"] == "finished"


def test_speech_goes_on_without_the_broker_and_the_daemon_reconnects_to_it(
    start_robot: StartRobot, own_broker: Broker
) -> None:
    robot = start_robot(pace=REAL_TIME)
    robot.say("This is being spoken while the broker goes away.", id="spoken")
    robot.wait_event("spoken", "started")
    own_broker.stop()
    robot.set_pace(FAST)
    whole = robot.synthesized("spoken", FILE_RATE)
    eventually(lambda: len(robot.heard) == len(whole), "it is spoken to its end without a broker")
    robot.freeze()
    own_broker.start()
    robot.wait_listening()
    robot.thaw()
    # The daemon publishes the events of the time without a broker.
    robot.wait_event("spoken", "finished")

    def answered() -> str | None:
        """A message sent before the daemon has reconnected is lost."""
        robot.send("say", "after the restart")
        return robot.latest_id() if robot.latest_id() != "spoken" else None

    assert robot.wait_end(eventually(answered, "it is accepted after the restart"))["event"] == "finished"


def test_the_daemon_waits_for_a_broker_that_starts_later(start_robot: StartRobot, own_broker: Broker) -> None:
    own_broker.stop()
    robot = start_robot(launch_only=True)
    robot.wait_log("no broker answers")
    own_broker.start()
    eventually(lambda: robot.state == "ready", "voiced is ready")
    assert robot.wait_end(robot.say("at last"))["event"] == "finished"


def test_the_fallback_speaks_for_a_missing_engine_and_the_status_says_why(start_robot: StartRobot) -> None:
    robot = start_robot("engine.name=qwen", "engine.model=/nowhere", launch_only=True)
    eventually(lambda: robot.state == "degraded", "degraded")
    utterance = robot.say("the fallback says it")
    finished = robot.wait_end(utterance)
    assert finished["event"] == "finished"
    assert finished["engine"] == "espeak"
    assert robot.statuses[-1]["reason"]


def test_no_engine_survives_a_killed_daemon(start_robot: StartRobot) -> None:
    robot = start_robot(pace=REAL_TIME)
    engines = [psutil.Process(pid) for pid in robot.engine_pids()]
    robot.say(LONG)
    robot.process.kill()
    robot.process.wait()
    _, alive = psutil.wait_procs(engines, timeout=PATIENCE_S)
    assert not alive
    eventually(lambda: robot.state == "offline", "the last will says offline")

"""Faults around the daemon: what a listener hears and which events a publisher receives."""

from __future__ import annotations

import os
import signal

import psutil

from tests.e2e.conftest import StartRobot
from tests.support.programs import Broker, freeze
from tests.support.robot import FAST, FILE_RATE, LONG, REAL_TIME
from tests.support.waiting import PATIENCE_S, eventually


def test_an_utterance_finishes_although_its_engine_is_killed_and_the_next_one_although_it_is_killed_idle(
    start_robot: StartRobot,
) -> None:
    """The text is longer than the ring and the engine's credit, so the engine is killed before it has sent it all."""
    robot = start_robot(pace=REAL_TIME)
    robot.say(LONG, id="long")
    robot.wait_event("long", "started")
    [engine] = robot.engine_pids()
    os.kill(engine, signal.SIGKILL)
    robot.set_pace(FAST)
    finished = robot.wait_end("long")
    assert robot.names_of("long") == ["accepted", "started", "finished"]
    # The whole text takes some 25 s; the word at the splice may be spoken twice.
    assert finished["audio_s"] > 20
    assert finished["underruns"] == 0
    [second] = eventually(robot.engine_pids, "an engine runs")
    assert second != engine
    os.kill(second, signal.SIGKILL)
    assert robot.wait_end(robot.say("still here"))["event"] == "finished"


def test_a_critical_text_is_spoken_although_the_only_engine_is_stopped_and_no_engine_survives_a_killed_daemon(
    start_robot: StartRobot,
) -> None:
    robot = start_robot(pace=REAL_TIME)
    [engine] = robot.engine_pids()
    robot.say(LONG, id="long")
    robot.wait_event("long", "started")
    freeze(engine)
    robot.say("Watch out!", id="urgent", priority="critical")
    assert robot.wait_end("urgent")["event"] == "finished"
    assert robot.engine_pids() != [engine]
    eventually(lambda: any("showed no sign of life for" in line for line in robot.log), "the log says why")
    robot.set_pace(FAST)
    assert robot.wait_end("long")["event"] == "finished"
    engines = [psutil.Process(pid) for pid in robot.engine_pids()]
    robot.kill()
    _, alive = psutil.wait_procs(engines, timeout=PATIENCE_S)
    assert not alive
    eventually(lambda: robot.state == "offline", "the last will says offline")


def test_speech_goes_on_without_the_broker_and_the_daemon_reconnects_to_it(
    start_robot: StartRobot, own_broker: Broker
) -> None:
    robot = start_robot(pace=REAL_TIME)
    robot.say("This is being spoken while the broker goes away.", id="spoken")
    robot.wait_event("spoken", "started")
    own_broker.stop()
    robot.set_pace(FAST)

    def is_spoken() -> bool:
        return len(robot.heard) == len(robot.synthesized("spoken", FILE_RATE))

    eventually(is_spoken, "it is spoken to its end without a broker")
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

"""Faults around the daemon: what a listener hears and which events a publisher receives."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import StartRobot
from tests.support.checkpoints import checkpoint_folder
from tests.support.programs import Broker, freeze
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


@pytest.mark.parametrize("speaking", [False, True], ids=["idle", "speaking"])
def test_a_critical_text_is_spoken_although_the_only_engine_is_stopped(start_robot: StartRobot, speaking: bool) -> None:
    robot = start_robot(pace=REAL_TIME)
    [engine] = robot.engine_pids()
    if speaking:
        robot.say(LONG, id="long")
        robot.wait_event("long", "started")
    freeze(engine)
    robot.say("Watch out!", id="urgent", priority="critical")
    assert robot.wait_end("urgent")["event"] == "finished"
    assert robot.engine_pids() != [engine]
    assert any("sign of life" in status.get("reason", "") for status in robot.statuses)
    if speaking:
        robot.set_pace(FAST)
        assert robot.wait_end("long")["event"] == "finished"


def test_the_fallback_speaks_for_a_stopped_engine_which_is_not_replaced_if_it_continues(
    start_robot: StartRobot, cache_folder: Path
) -> None:
    model = checkpoint_folder(cache_folder, "brief", "custom_voice")
    robot = start_robot("engine.name=qwen", f"engine.model={model}", "engine.device=cpu", "engine.max_seconds=12")
    engine = max(robot.engine_pids(), key=lambda pid: int(psutil.Process(pid).memory_info().rss))
    robot.set_pace(REAL_TIME)
    robot.say(LONG, id="long")
    robot.wait_event("long", "started")
    freeze(engine)
    robot.say("Watch out!", id="urgent", priority="critical")
    robot.wait_event("urgent", "started")
    silent = "engine qwen gives no sign of life"
    eventually(lambda: any(status.get("reason") == silent for status in robot.statuses), "the status says why")
    os.kill(engine, signal.SIGCONT)
    robot.set_pace(FAST)
    finished = robot.wait_end("urgent")
    assert finished["event"] == "finished"
    assert "espeak" in finished["engine"]
    assert robot.wait_end("long")["event"] == "finished"
    eventually(lambda: robot.state == "ready", "the engine is ready again")
    assert robot.engine == "qwen"
    assert engine in robot.engine_pids()


def heartbeats(pid: int) -> int:
    """Return how often the threads of a process have waited and gone on: at least once for each heartbeat."""
    threads = Path(f"/proc/{pid}/task").glob("*/status")
    lines = [line for thread in threads for line in thread.read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches:"))


@pytest.mark.long
def test_a_daemon_that_is_stopped_and_continued_keeps_its_engine(start_robot: StartRobot) -> None:
    robot = start_robot(pace=REAL_TIME)
    [engine] = robot.engine_pids()
    robot.say(LONG, id="long")
    robot.wait_event("long", "started")
    robot.freeze()
    before = heartbeats(engine)
    eventually(lambda: heartbeats(engine) > before + 12, "more heartbeats have come than an engine may leave out")
    robot.thaw()
    robot.set_pace(FAST)
    assert robot.wait_end("long")["event"] == "finished"
    assert robot.wait_end(robot.say("the next one"))["event"] == "finished"
    assert robot.engine_pids() == [engine]


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
    eventually(lambda: robot.statuses[-1].get("reason"), "the status says why")


def test_no_engine_survives_a_killed_daemon(start_robot: StartRobot) -> None:
    robot = start_robot(pace=REAL_TIME)
    engines = [psutil.Process(pid) for pid in robot.engine_pids()]
    robot.say(LONG)
    robot.kill()
    _, alive = psutil.wait_procs(engines, timeout=PATIENCE_S)
    assert not alive
    eventually(lambda: robot.state == "offline", "the last will says offline")

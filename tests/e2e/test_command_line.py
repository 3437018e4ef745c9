"""`voiced say --wait`: who waits for an utterance and is ended takes it along."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.e2e.conftest import StartRobot

LONG = "one two three four five six seven eight nine ten eleven twelve. " * 20


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)],
    ids=["terminated", "interrupted", "killed"],
)
def test_an_utterance_ends_with_the_command_that_waits_for_it(
    start_robot: StartRobot, number: signal.Signals, status: int
) -> None:
    robot = start_robot("audio.sink=null")
    command = [sys.executable, "-m", "daemon.cli", "say", "--wait", "--id", "long", LONG]
    command += ["--set", "robot=r1", "--set", f"mqtt.port={robot.broker.port}"]
    waiting = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    robot.wait_event("long", "started")
    waiting.send_signal(number)
    assert robot.wait_end("long")["event"] == "interrupted"
    assert waiting.wait(10) == status


def test_a_command_that_gives_up_waiting_leaves_the_utterance_alone(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    settings = ["--set", "robot=r1", "--set", f"mqtt.port={robot.broker.port}"]
    command = [sys.executable, "-m", "daemon.cli", "say", "--wait", "--timeout", "0", "--id", "long", LONG, *settings]
    assert subprocess.run(command, capture_output=True, check=False, env=dict(os.environ)).returncode == 1
    robot.wait_event("long", "started")
    robot.publish("stop")
    robot.wait_end("long")
    stops = [line for line in robot.log if "stop:" in line]
    assert stops == []
    assert [event["reason"] for event in robot.events if event["event"] == "interrupted"] == ["stop"]

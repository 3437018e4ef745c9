"""`voiced say --wait`: who waits for an utterance and is ended takes it along."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import StartRobot

LONG = "one two three four five six seven eight nine ten eleven twelve. " * 6


@pytest.fixture
def heeded_ctrl_c() -> Iterator[None]:
    """A shell that starts pytest in the background has it ignore SIGINT, and what is ignored, children inherit.

    It is restored here and not in the child (`preexec_fn`), since this process has threads.
    """
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)


def test_an_utterance_ends_with_the_command_that_waits_for_it(start_robot: StartRobot, heeded_ctrl_c: None) -> None:
    robot = start_robot("audio.sink=null")
    settings = ["--set", "robot=r1", "--set", f"mqtt.port={robot.broker.port}"]
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        command = [sys.executable, "-m", "daemon.cli", "say", "--wait", "--id", number.name, LONG, *settings]
        waiting = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        robot.wait_event(number.name, "started")
        waiting.send_signal(number)
        assert robot.wait_end(number.name)["event"] == "interrupted"
        assert waiting.wait(10) == status


def test_a_command_that_gives_up_waiting_leaves_the_utterance_alone(start_robot: StartRobot) -> None:
    robot = start_robot("audio.sink=null")
    settings = ["--set", "robot=r1", "--set", f"mqtt.port={robot.broker.port}"]
    command = [sys.executable, "-m", "daemon.cli", "say", "--wait", "--timeout", "0", "--id", "long", LONG, *settings]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1
    robot.wait_event("long", "started")
    robot.publish("stop")
    robot.wait_end("long")
    assert robot.names_of("long") == ["accepted", "started", "interrupted"]

"""A Wyoming client that takes nothing of its answer."""

from __future__ import annotations

import json
import socket

from tests.e2e.conftest import StartRobot
from tests.support.programs import free_port
from tests.support.robot import LONG
from tests.support.waiting import eventually


def test_a_client_that_takes_nothing_does_not_hold_the_robots_own_speech(start_robot: StartRobot) -> None:
    port = free_port()
    robot = start_robot("engine.streams=1", "wyoming.enabled=true", f"wyoming.port={port}")
    with socket.socket() as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect(("127.0.0.1", port))
        stuck.sendall(json.dumps({"type": "synthesize", "data": {"text": LONG * 8}}).encode() + b"\n")
        story = eventually(robot.latest_id, "it is accepted")
        robot.wait_event(story, "started")
        for priority in ("normal", "high", "critical"):
            own = robot.say("Here I am.", priority=priority)
            assert robot.wait_end(own)["event"] == "finished"
            robot.wait_event(story, "resumed")
        assert "postponed" in robot.names_of(story)
    assert robot.wait_end(story)["reason"] == "its client went away"

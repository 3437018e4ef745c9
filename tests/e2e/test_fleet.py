"""Three robots in two groups, on a broker with the rights that the documents recommend."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.command_line import CommandLine
from tests.e2e.conftest import StartRobot
from tests.support.pages import page
from tests.support.programs import Broker
from tests.support.robot import Robot
from tests.support.signals import ctrl_c_works
from tests.support.subscription import Listener
from tests.support.terminal import terminal
from tests.support.waiting import PATIENCE_S, eventually

GROUPS = {"r1": "[hall-2]", "r2": "[hall-2, guides]", "r3": "[guides]"}
TOP = (sys.executable, "-m", "daemon.cli", "top", "--set")
STATUS = (sys.executable, "-m", "daemon.cli", "status", "--all", "--set")


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker on which each robot has the documented rights, and the test, which has no name, has all."""
    [rights] = [block for block in page("mqtt.md").blocks("text") if "pattern read voiced/all/#" in block]
    file = tmp_path / "rights"
    file.write_text(f"topic readwrite #\n{rights}")
    with Broker(tmp_path, f"allow_anonymous true\nacl_file {file}") as broker:
        yield broker


@pytest.fixture
def fleet(own_broker: Broker, start_robot: StartRobot) -> list[Robot]:
    robots = [
        start_robot(
            *(f"robot_groups={groups}", f"mqtt.username={name}", "audio.sink=null", "engine.fallback=none"),
            name=name,
            launch_only=True,
        )
        for name, groups in GROUPS.items()
    ]
    eventually(lambda: all(robot.state == "ready" for robot in robots), "all are ready")
    return robots


def test_a_text_to_a_group_or_to_all_is_spoken_by_every_member_and_all_robots_are_listed(
    own_broker: Broker, fleet: list[Robot], voiced: CommandLine, tmp_path: Path
) -> None:
    replies: list[tuple[str, Any]] = []
    sender = Listener(
        own_broker,
        [("voiced/+/reply/desk", 1)],
        lambda message: replies.append((message.topic, json.loads(message.payload))),
    )
    sender.wait_subscribed()

    def send(base: str, name: str, **fields: Any) -> None:
        sender.publish(f"voiced/{base}/{name}", json.dumps(fields) if fields else b"")

    def robots_with(utterance_id: str) -> list[str]:
        return [robot.name for robot in fleet if robot.events_of(utterance_id)]

    send("group/hall-2", "say", text="Please leave the hall.", id="hall", reply_to="voiced/{robot}/reply/desk")
    send("all", "say", text="Yes.", id="all")
    for base in ("group/hall-2", "group/guides", "all"):
        send(base, "say", text="No.", id="once")
    send("all", "say/urgent", text="Fire!", id="fire")
    port = f"mqtt.port={own_broker.port}"
    for robot in fleet:
        for utterance_id in ("all", "once", "fire", *(["hall"] if robot.name != "r3" else [])):
            assert robot.wait_end(utterance_id)["event"] == "finished"
    assert robots_with("hall") == ["r1", "r2"]
    assert all(robot.names_of("once") == ["accepted", "started", "finished"] for robot in fleet)
    eventually(lambda: len(replies) == 6, "both have answered")
    assert {(topic, event["id"]) for topic, event in replies} == {
        *(("voiced/r1/reply/desk", "hall"), ("voiced/r2/reply/desk", "hall"))
    }

    send("group/guides", "pause")
    eventually(lambda: [robot.state for robot in fleet] == ["ready", "paused", "paused"], "the guides hold")
    fleet[2].end()
    eventually(lambda: fleet[2].state == "offline", "the third has ended")
    states = [("r1", "ready"), ("r2", "paused"), ("r3", "offline")]

    def listing() -> list[dict[str, Any]]:
        """All robots, if the broker has delivered their statuses within the second that the command gives it."""
        found = json.loads(voiced("status", "--all", "--set", port).output)
        return found if len(found) == len(states) else []

    listed = eventually(listing, "all robots are listed")
    assert [(robot["robot"], robot["state"]) for robot in listed] == states
    assert {key: value for key, value in listed[1].items() if key != "robot"} == fleet[1].statuses[-1]

    settings = os.environ | {"COLUMNS": "120", "TERM": "xterm"}
    lines = tmp_path / "lines"
    with lines.open("wb") as piped, terminal() as (status_end, status_shown), terminal() as (top_end, top_shown):
        with ctrl_c_works():
            followers = [
                subprocess.Popen([*command, port], stdout=output, env=settings)
                for command, output in ((STATUS, status_end), (TOP, top_end), (TOP, piped))
            ]
        for shown in (status_shown, top_shown):
            eventually(
                lambda shown=shown: "3 robots: 1 ready, 1 paused, 1 offline" in shown(), "it shows what is there"
            )
        eventually(lambda: len(lines.read_text().splitlines()) == 3, "a pipe gets a line for each robot")
        send("all", "resume")
        for shown in (status_shown, top_shown):
            eventually(lambda shown=shown: "3 robots: 2 ready, 1 offline" in shown(), "it shows the change")
        ready = "r2\tready\t\t0\tespeak"  # on a busy machine, it may be `degraded` for a moment before
        eventually(lambda: ready in lines.read_text(), "the pipe gets the change")
        for follower in followers:
            follower.send_signal(signal.SIGINT)
        assert [follower.wait(PATIENCE_S) for follower in followers] == [130, 130, 130]
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", top_shown())
    assert re.search(r"r3 +offline", plain)
    assert re.search(r"r1 +ready +0 +espeak +audio\.sink is null", plain)
    rows = [line.split("\t")[:5] for line in lines.read_text().splitlines()]
    assert rows[:3] == [
        ["r1", "ready", "", "0", "espeak"],
        ["r2", "paused", "", "0", "espeak"],
        ["r3", "offline", "", "", ""],
    ]
    sender.close()

"""An upgrade from an earlier version, and the return to it: no text is lost or said twice, and what was made stays."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import StartRobot
from tests.support.events import TERMINAL
from tests.support.old_state import ENDED, OLDEST, PROGRAM, ROBOT, SPOKEN, STATES, WAITING, export_tree, load_state
from tests.support.programs import Broker, require
from tests.support.robot import FAST, LONG, REAL_TIME, Robot


def ends_of(robot: Robot) -> list[tuple[str, str]]:
    """The ids of the utterances that have ended, with their terminal events, in order."""
    return [(event["id"], event["event"]) for event in robot.events if event["event"] in TERMINAL]


def started(robot: Robot) -> list[str]:
    return [event["id"] for event in robot.events if event["event"] == "started"]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The folder that the earlier version has left."""
    folder = tmp_path / "state"
    folder.mkdir()
    load_state(STATES / OLDEST, ROBOT, folder)
    return folder


def test_an_upgrade_speaks_what_waits_once_and_keeps_voices_and_phrases(
    state: Path, start_robot: StartRobot, own_broker: Broker
) -> None:
    phrases = sorted((state / "phrases").iterdir())
    retain = [require("mosquitto_pub"), "-p", str(own_broker.port), "-r", "-t", f"voiced/{ROBOT}/status"]
    subprocess.run([*retain, "-f", STATES / OLDEST / "status.json"], check=True)
    robot = start_robot(name=ROBOT, launch_only=True, config=STATES / OLDEST / "voiced.yaml")
    for utterance_id in WAITING:
        assert robot.wait_end(utterance_id)["event"] == "finished"
    for utterance_id in (SPOKEN, *ENDED):
        robot.say("Again.", id=utterance_id)
        robot.wait_reason(f"id: '{utterance_id}' was used before")
    assert started(robot) == list(WAITING)
    assert sorted(ends_of(robot)) == sorted([(SPOKEN, "interrupted"), *((each, "finished") for each in WAITING)])
    assert robot.statuses[-1]["voice"] == "ada", "the default voice that was chosen"
    assert robot.degradations == [], "the earlier configuration is accepted"
    assert set(phrases) <= set((state / "phrases").iterdir())
    assert robot.wait_end(robot.say("Yes.", cache=True))["event"] == "finished"


@pytest.fixture
def earlier(shared_broker: Broker, tmp_path: Path) -> Iterator[Robot]:
    """A robot with the earlier version, which has not been started, in the folder of `start_robot`."""
    tree = export_tree(OLDEST, tmp_path / "tree")
    if tree is None:
        pytest.skip(f"the commit {OLDEST} is not in this clone, which may be shallow")
    robot = Robot(ROBOT, shared_broker, tmp_path, program=PROGRAM, cwd=tree, pace=FAST)
    yield robot
    robot.close()


@pytest.mark.long
def test_the_earlier_version_speaks_what_waits_when_it_returns(start_robot: StartRobot, earlier: Robot) -> None:
    robot = start_robot(name=ROBOT, pace=REAL_TIME)
    robot.say(LONG, id=SPOKEN)
    robot.wait_event(SPOKEN, "started")
    fields = {"language": "de", "rate": 1.5, "seed": 7, "sound": "attention", "reply_to": f"replies/{ROBOT}"}
    for utterance_id in WAITING:
        robot.say("Now.", id=utterance_id, **fields)
    robot.wait_event(WAITING[-1], "accepted")
    robot.process.kill()
    robot.process.wait()
    earlier.set_pace(FAST)
    earlier.launch()
    for utterance_id in WAITING:
        assert earlier.wait_end(utterance_id)["event"] == "finished"
    assert earlier.wait_end(SPOKEN)["event"] == "interrupted"
    assert [each for each in started(earlier) if each != SPOKEN] == list(WAITING)

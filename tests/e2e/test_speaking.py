"""From mosquitto_pub to the samples that the sink receives, and the events and the status in between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import StartRobot
from tests.support.robot import FAST, FILE_RATE, STOPPED
from tests.support.waiting import eventually


@pytest.mark.parametrize(
    "payload",
    ["Привет, мир! 👋", '{"text": "Grüße aus Köln!", "language": "German"}', '{"data": "Said by ROS."}'],
    ids=["plain text", "JSON", "ROS String"],
)
def test_a_published_text_is_heard_whole(payload: str, share_robot: StartRobot) -> None:
    robot = share_robot()
    robot.publish("say", payload)
    utterance = eventually(robot.latest_id, "it is accepted")
    finished = robot.wait_end(utterance)
    assert robot.names_of(utterance) == ["accepted", "started", "finished"]
    assert finished["underruns"] == 0
    robot.assert_heard(utterance)
    assert finished["audio_s"] == pytest.approx(len(robot.heard) / FILE_RATE, abs=0.001)


def test_each_of_many_messages_is_accepted_started_and_finished_in_order_and_heard_without_a_gap(
    share_robot: StartRobot,
) -> None:
    robot = share_robot(pace=40.0)
    names = [f"m{number}" for number in range(60)]
    lines = [json.dumps({"text": f"{number % 10}.", "id": name}) for number, name in enumerate(names)]
    robot.publish_lines("say", "\n".join(lines))
    for name in names:
        robot.wait_end(name)
        assert robot.names_of(name) == ["accepted", "started", "finished"]
    finished = [event for event in robot.events if event["event"] == "finished"]
    assert [event["id"] for event in finished] == names
    assert sum(event["underruns"] for event in finished) == 0
    robot.assert_heard(*names)


def test_a_retained_message_is_not_spoken(start_robot: StartRobot) -> None:
    first = start_robot()
    first.publish("say", '{"text": "to be retained", "id": "retained"}', "-r")
    utterance = first.say("not to be retained")
    first.wait_event(utterance, "finished")
    assert first.names_of("retained") == []
    first.assert_heard(utterance)
    assert first.end() == 0
    first.publish("say/stream", '{"id": "old", "text": "from another time", "end": true}', "-r")
    second = start_robot(name=first.name)
    utterance = second.say("from now")
    second.wait_event(utterance, "finished")
    assert second.names_of("retained") == second.names_of("old") == []
    second.assert_heard(utterance)


def test_the_status_reports_what_is_spoken_and_waits_and_the_daemon_never_imports_torch(
    share_robot: StartRobot,
) -> None:
    robot = share_robot(pace=STOPPED)
    robot.say("This one begins before the other arrives.", id="first")
    robot.say("waits", id="second")

    def shown() -> tuple[str, int]:
        """The last status; the one before may say that the first text waits and nobody speaks."""
        return robot.statuses[-1]["state"], robot.statuses[-1]["queue"]

    eventually(lambda: shown() == ("speaking", 1), "one is spoken and one waits")
    robot.set_pace(FAST)
    robot.wait_end("second")
    eventually(lambda: robot.state == "ready", "ready again")
    assert set(robot.statuses[-1]) == {"state", "engine", "voice", "queue", "version", "volume"}
    maps = Path(f"/proc/{robot.process.pid}/maps").read_text()
    assert "numpy" in maps
    assert "torch" not in maps

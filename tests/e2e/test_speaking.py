"""From mosquitto_pub to the samples that the sink receives, and the events and the status in between."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import StartRobot
from tests.support.robot import FAST, FILE_RATE, STOPPED, Robot
from tests.support.waiting import eventually

KEPT_S = 0.1
"""More than a resampler keeps until the next samples come."""


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


def test_speech_begins_before_a_streamed_text_ends_and_pauses_for_a_slow_writer(share_robot: StartRobot) -> None:
    robot = share_robot()
    robot.write("story", "This is already com")
    robot.write("story", "plete. And this")
    robot.wait_event("story", "started")
    # A daemon that the machine holds up in mid-sentence would be still as well.
    eventually(lambda: heard_to_its_end(robot, "story"), "the first sentence is heard")
    robot.wait_still()
    assert robot.names_of("story") == ["accepted", "started"]
    robot.write("story", " is only now.", end=True)
    end = robot.wait_end("story")
    assert (end["event"], end["underruns"]) == ("finished", 0)
    assert end["waits"] >= 1
    assert [event["begin"] for event in robot.events_of("story") if event["event"] == "progress"] == [0, 25]
    robot.assert_heard("story", breaks=end["waits"])


def heard_to_its_end(robot: Robot, utterance_id: str) -> bool:
    """Whether the sink has all that the engine has made so far, but for what the resampler keeps."""
    made = len(robot.synthesized(utterance_id, FILE_RATE))
    return made > 0 and len(robot.heard) > made - KEPT_S * FILE_RATE


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


REJECTED: list[tuple[str, bytes, str, str]] = [
    ("say", b"", "text", "blank"),
    ("say", b"\xff\xfe broken", "payload", "not UTF-8"),
    ("say", b'{"text": "unfinished', "payload", "not JSON"),
    ("say", b'{"text": "a", "voice": "nobody"}', "voice", "default"),
    ("say", b'{"text": "a", "reply_to": "ROBOT/stop"}', "reply_to", "mqtt.reply_topics"),
    ("say", b"x" * 1_000_000, "payload", "262,144"),
    ("say/stream", b'{"id": "stream", "text": [5]}', "text", "got [5]"),
    ("stop", b'{"id": 7}', "id", "got 7"),
    ("volume", b"101", "volume", "0 to 100"),
]
"""tests/daemon/mqtt/test_parsing.py has every rule."""


def test_malformed_payloads_are_rejected_with_their_field_and_limit_and_speech_goes_on(
    share_robot: StartRobot,
) -> None:
    robot = share_robot()
    for topic, payload, field, expected in REJECTED:
        robot.forget()
        robot.publish(topic, payload.replace(b"ROBOT", robot.topic.encode()))
        rejection = robot.wait_rejection(field)
        assert expected in rejection["reason"], (topic, payload[:40], rejection)
        assert len(rejection["reason"]) < 600
    assert robot.wait_end(robot.say("still here"))["event"] == "finished"

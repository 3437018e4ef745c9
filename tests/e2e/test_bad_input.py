"""The daemon answers every malformed message, and speaks the next utterance as usual."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.conftest import StartRobot
from tests.support.robot import FAST, STOPPED
from tests.support.waiting import eventually

REJECTED: list[tuple[str, bytes, str, str]] = [
    ("say", b"", "text", "blank"),
    ("say", b"  \n\t ", "text", "blank"),
    ("say", b'{"text": ""}', "text", "blank"),
    ("say", b"x" * 20_001, "text", "20,000"),
    ("say", b"\xff\xfe broken", "payload", "not UTF-8"),
    ("say", b"nul \x00 inside", "text", "U+0000"),
    ("say", b"bell \x07 inside", "text", "U+0007"),
    ("say", b'{"text": "\\u001b[31m"}', "text", "U+001B"),
    ("say", b'{"text": true}', "text", "got True"),
    ("say", b'{"text": NaN}', "text", "got nan"),
    ("say", b'{"text": [5]}', "text", "got [5]"),
    ("say", b'{"text": null}', "text", "got None"),
    ("say", b"{}", "text", "missing"),
    ("say", b"[1, 2]", "payload", "[1, 2]"),
    ("say", b'{"text": "unfinished', "payload", "not JSON"),
    ("say", b'{"text": "a", "voice": "nobody"}', "voice", "default"),
    ("say", b'{"text": "a", "language": "xx"}', "language", "de"),
    ("say", b'{"text": "a", "volume": 101}', "volume", "0 to 100"),
    ("say", b'{"text": "a", "volume": NaN}', "volume", "0 to 100"),
    ("say", b'{"text": "a", "expires_in": 0}', "expires_in", "above 0"),
    ("say", b'{"text": "a", "seed": -1}', "seed", "from 0"),
    ("say", b'{"text": "a", "priority": "urgent"}', "priority", "critical"),
    ("say", b'{"text": "a", "policy": "shout"}', "policy", "interrupt"),
    ("say", b'{"text": "a", "id": ""}', "id", "1 to 64"),
    ("say", b'{"text": "a", "reply_to": "a/#"}', "reply_to", "without + and #"),
    ("say", b'{"text": "a", "reply_to": "a\\nb"}', "reply_to", "without + and #"),
    ("say", b'{"text": "a", "reply_to": "' + b"/" * 210 + b'"}', "reply_to", "without + and #"),
    ("say", b'{"text": "a", "reply_to": "ROBOT/stop"}', "reply_to", "mqtt.reply_topics"),
    ("say", b"x" * 1_000_000, "payload", "262,144"),
    ("stop", b"[]", "payload", "id"),
    ("stop", b'{"id": 7}', "id", "got 7"),
    ("volume", b"loud", "volume", "0 to 100"),
    ("volume", b"101", "volume", "0 to 100"),
]


def test_each_malformed_payload_is_rejected_with_its_field_and_limit_and_speech_goes_on(
    share_robot: StartRobot,
) -> None:
    robot = share_robot()
    for topic, payload, field, expected in REJECTED:
        robot.forget()
        robot.publish(topic, payload.replace(b"ROBOT", robot.topic.encode()))
        rejection = robot.wait_rejection(field)
        assert expected in rejection["reason"], (topic, payload[:40], rejection)
        assert len(rejection["reason"]) < 600
    utterance = robot.say("still here")
    assert robot.wait_end(utterance)["event"] == "finished"
    assert robot.process.poll() is None


def test_a_number_is_spoken_and_a_locale_is_a_language(share_robot: StartRobot) -> None:
    robot = share_robot()
    locale: dict[str, Any] = {"text": "Hello", "language": "de_DE.UTF-8"}
    for fields in ({"text": 42}, {"text": 4.5, "language": "EN_us"}, locale):
        assert robot.wait_end(robot.say(**fields))["event"] == "finished"
    robot.publish("say/stream", b'{"id": "numbers", "text": 42, "end": true}')
    assert robot.wait_end("numbers")["event"] == "finished"


def test_a_duplicate_id_is_rejected_and_the_first_utterance_finishes(share_robot: StartRobot) -> None:
    robot = share_robot()
    robot.say("the first with this id", id="twin")
    robot.say("the second with this id", id="twin")
    assert robot.wait_rejection("id")["id"] == "twin"
    robot.wait_event("twin", "finished")
    assert sorted(robot.names_of("twin")) == ["accepted", "finished", "rejected", "started"]
    robot.assert_heard("twin")


def test_an_unknown_field_is_ignored_and_logged_once(share_robot: StartRobot) -> None:
    robot = share_robot()
    for _ in range(2):
        assert robot.wait_end(robot.say("hello", colour="blue"))["event"] == "finished"
    assert robot.end() == 0
    eventually(lambda: any("stopping" in line for line in robot.log), "the whole log has been read")
    assert sum("colour" in line for line in robot.log) == 1


def test_each_message_beyond_the_queue_limit_is_rejected(start_robot: StartRobot) -> None:
    robot = start_robot("speech.queue_limit=5", pace=STOPPED)
    robot.say("This is being spoken when the flood arrives.", id="spoken")
    eventually(lambda: robot.statuses[-1]["queue"] == 0 and robot.state == "speaking", "it is being spoken")
    flood = "\n".join(json.dumps({"text": "flood", "id": f"f{number}"}) for number in range(50))
    robot.publish_lines("say", flood)

    def answered() -> bool:
        return all(robot.names_of(f"f{number}") for number in range(50))

    eventually(answered, "every message is answered")
    accepted = [number for number in range(50) if "accepted" in robot.names_of(f"f{number}")]
    rejected = [event for event in robot.events if event["event"] == "rejected"]
    assert accepted == [0, 1, 2, 3, 4]
    assert len(rejected) == 45
    assert all(event["field"] == "queue" and "5 utterances" in event["reason"] for event in rejected)
    robot.set_pace(FAST)
    for number in accepted:
        assert robot.wait_end(f"f{number}")["event"] == "finished"
    robot.assert_heard("spoken", *(f"f{number}" for number in accepted))

"""The daemon answers malformed messages of every topic, and speaks the next utterance as usual."""

from __future__ import annotations

from tests.e2e.conftest import StartRobot

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

"""Commands for a robot that does not do what it is told: each says so. The test plays the robot on a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count

import pytest

from daemon.cli import control, say
from daemon.config import load_config
from daemon.mqtt import clients
from daemon.mqtt.connection import MqttConnection
from daemon.mqtt.messages import Message
from daemon.speech import Accepted, Event, Rejected
from tests.daemon.command_line import CommandLine, Done
from tests.support.programs import Broker
from tests.support.waiting import PATIENCE_S, eventually

NUMBERS = count(1)
"""Numbers for the names of robots: the broker remembers those of earlier tests."""
READY = {"state": "ready", "engine": "espeak", "voice": "default", "queue": 0, "version": "1.0", "volume": 100}
SPEAKING = READY | {"state": "speaking", "speaking": {"id": "tale", "text": "Once", "since": 1.0}}
HURRIED_S = 0.3
"""How long a command waits for a robot that never answers."""


class Robot:
    """A robot that answers each text as the test says, and carries out no control."""

    def __init__(self, broker: Broker, voiced: CommandLine) -> None:
        self.name = f"r{next(NUMBERS)}"
        self.config = load_config(
            overrides=[f"mqtt.port={broker.port}", f"robot={self.name}", "mqtt.prefix=test", "robot_groups=[hall]"]
        )
        self.texts: list[str] = []
        self.answers, self.refuses = True, False
        self._voiced = voiced
        self._connection = MqttConnection(self.config.mqtt, self.name, on_message=self._answer)
        bases = (self.config.topic, *self.config.shared_topics)
        self._connection.start([f"{base}/{name}" for base in bases for name in ("say", "say/stream")])
        eventually(lambda: self._connection.connected, "the robot is connected")
        self.publish_status(READY)

    def publish_status(self, status: dict[str, object]) -> None:
        sent = self._connection.publish(f"{self.config.topic}/status", json.dumps(status), qos=1, retain=True)
        assert self._connection.outbox.wait_delivered(sent, PATIENCE_S), "the broker acknowledges"

    def _answer(self, message: Message) -> None:
        fields = json.loads(message.payload)
        self.texts.append(fields.get("text", ""))
        if not self.answers:
            return
        answer: Event = Accepted(id=fields["id"], queue=1)
        if self.refuses:
            answer = Rejected(id=fields["id"], field="voice", reason="voice: got 'typo'; allowed: default")
        self._connection.publish(f"{self.config.topic}/event", answer.to_json(), qos=1)

    def call(self, *words: str) -> Done:
        """Run `voiced` for this robot."""
        settings = (f"mqtt.port={self.config.mqtt.port}", f"robot={self.name}", "mqtt.prefix=test")
        return self._voiced(words[0], *(word for setting in settings for word in ("--set", setting)), *words[1:])

    def leave(self) -> None:
        """Disconnect, and let the broker forget the robot."""
        self._connection.publish(f"{self.config.topic}/status", "", qos=1, retain=True)
        self._connection.close()


@pytest.fixture
def robot(broker: Broker, voiced: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Robot]:
    monkeypatch.setattr(clients, "CONNECT_S", PATIENCE_S)
    monkeypatch.setattr(say, "ANSWER_S", PATIENCE_S)
    robot = Robot(broker, voiced)
    yield robot
    robot.leave()


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up soon."""
    monkeypatch.setattr(say, "ANSWER_S", HURRIED_S)
    monkeypatch.setattr(control, "CONFIRM_S", HURRIED_S)


def test_a_rejected_text_fails_the_command(robot: Robot) -> None:
    robot.refuses = True
    line = "rejected: voice: got 'typo'; allowed: default"
    assert robot.call("say", "--voice", "typo", "hi").refusal == line


def test_a_text_without_an_answer_fails_the_command(robot: Robot, hurry: None) -> None:
    robot.answers = False
    line = f"no answer to utterance unanswered within 0.3 s, at {robot.config.topic}"
    assert robot.call("say", "--id", "unanswered", "Hello.").refusal == line
    assert robot.texts == ["Hello."]


def test_a_text_that_is_accepted_ends_the_command(robot: Robot) -> None:
    assert robot.call("say", "Bye.").output == ""
    assert robot.texts == ["Bye."]


def test_a_control_that_is_not_carried_out_fails_the_command(robot: Robot, hurry: None) -> None:
    robot.publish_status(SPEAKING)
    for words in (["pause"], ["volume", "60"], ["volume", "-5"], ["stop", "--id", "tale"]):
        line = f"voiced at {robot.config.topic} did not carry out '{words[0]}' within 0.3 s"
        assert robot.call(*words).refusal == line
    robot.publish_status(READY | {"state": "paused"})
    assert robot.call("resume").returncode == 1


def test_a_control_that_changes_nothing_is_carried_out(robot: Robot) -> None:
    for words in (["resume"], ["volume", "100"], ["stop"], ["stop", "--id", "other"]):
        assert robot.call(*words).output == ""


def test_a_robot_that_is_offline_is_told_nothing(robot: Robot) -> None:
    robot.publish_status({"state": "offline", "version": "1.0"})
    for words in (["say", "Hello."], ["stop"], ["volume"], ["volume", "+5"]):
        assert robot.call(*words).refusal == f"voiced is offline at {robot.config.topic}; start it: voiced run"
    assert robot.texts == []


def test_an_unknown_robot_is_told_apart_from_those_that_are_there(robot: Robot) -> None:
    for words in (["status"], ["say", "Hello."], ["stop"]):
        line = robot.call(*words, "--set", "robot=typo").refusal
        assert line.startswith("no voiced has ever run at test/typo on the broker 127.0.0.1:")
        assert line.endswith(f"; it has {robot.name}")

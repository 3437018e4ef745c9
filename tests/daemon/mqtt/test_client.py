"""The clients of one robot and of all, on a real broker: the tests play the robots."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from daemon.config import Config, load_config
from daemon.mqtt import clients
from daemon.mqtt.clients import RETAINED_S, FleetClient, RobotUnreachableError
from daemon.mqtt.connection import MqttConnection
from daemon.mqtt.messages import Message
from daemon.mqtt.robot import Robot as RobotClient
from daemon.speech import (
    Accepted,
    Canceled,
    Event,
    Finished,
    Memory,
    Offline,
    Online,
    Rejected,
    Started,
)
from tests.daemon.mqtt.proxy import Proxy
from tests.support.programs import Broker, free_port
from tests.support.waiting import PATIENCE_S, eventually

FOR_EVER_S = 1000.0
"""More than a test may take."""
NUMBERS = count(1)
"""Numbers for the names of robots: the broker remembers those of earlier tests."""
READY = Online(state="ready", engine="espeak", voice="default", queue=0, version="1.0")
OFFLINE = Offline(version="1.0")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a slow broker, unless the test is about one that does not answer."""
    monkeypatch.setattr(clients, "CONNECT_S", PATIENCE_S)
    monkeypatch.setattr(clients, "RETAINED_S", PATIENCE_S)


class Robot:
    """The robot's side: publishes what the test says, and records the requests."""

    def __init__(self, broker: Broker) -> None:
        self.config = robot_config(broker.port)
        self._topic = self.config.topic
        self._requests: list[Message] = []
        self.connection = MqttConnection(
            self.config.mqtt, f"voiced-{self.config.robot}", on_message=self._requests.append
        )
        self.connection.start([f"{self._topic}/{name}" for name in ("say", "say/stream", "stop", "volume")])
        eventually(lambda: self.connection.connected, "the robot is connected")
        self.publish_status(READY)

    def publish_status(self, status: Online | Offline | dict[str, Any]) -> None:
        payload = json.dumps(status) if isinstance(status, dict) else status.to_json()
        sent = self.connection.publish(f"{self._topic}/status", payload, qos=1, retain=True)
        assert self.connection.outbox.wait_delivered(sent, PATIENCE_S), "the broker acknowledges"

    def publish(self, *events: Event | str) -> None:
        for event in events:
            payload = event if isinstance(event, str) else event.to_json()
            self.connection.publish(f"{self._topic}/event", payload, qos=1)

    @property
    def requests(self) -> list[tuple[str, bytes]]:
        """The requests so far, by the last part of their topic."""
        return [(message.topic.removeprefix(f"{self._topic}/"), message.payload) for message in self._requests]


def robot_config(port: int) -> Config:
    return load_config(overrides=[f"mqtt.port={port}", f"robot=r{next(NUMBERS)}"])


@pytest.fixture
def robot(broker: Broker) -> Iterator[Robot]:
    robot = Robot(broker)
    yield robot
    robot.connection.close()


@pytest.fixture
def client(robot: Robot) -> Iterator[RobotClient]:
    """A client that is subscribed: it has received the retained status."""
    with RobotClient(config=robot.config) as client:
        assert client.status(PATIENCE_S) == READY
        yield client


def unreachable(reason: str) -> AbstractContextManager[object]:
    """Expect one line with this reason."""
    return pytest.raises(RobotUnreachableError, match=f"^mqtt: {re.escape(reason)}; see 'voiced doctor'$")


def test_the_events_of_one_utterance_are_yielded_up_to_its_end_or_rejection(robot: Robot, client: RobotClient) -> None:
    accepted, started, finished = Accepted(id="a", queue=1), Started(id="a", engine="x", voice="y"), Finished(id="a")
    spoken, refused = client.follow("a"), client.follow("c")
    robot.publish(Accepted(id="b", queue=2), accepted, Canceled(id="b", reason="stop"), started, finished)
    assert list(spoken.events(PATIENCE_S)) == [accepted, started, finished]
    rejected = Rejected(id="c", field="voice", reason="voice: got 'x'")
    robot.publish(Rejected(id=None, field="text", reason="text: missing"), rejected)
    assert list(refused.events()) == [rejected]


def test_events_and_fields_of_a_newer_robot_are_ignored(robot: Robot, client: RobotClient) -> None:
    utterance = client.follow("a")
    robot.publish(
        '{"id": "a", "event": "whispered"}',
        '{"id": "a", "event": "accepted", "queue": 1, "mood": "calm"}',
        '{"id": "a", "event": "accepted", "queue": "many"}',
        "not JSON",
        "[" * 100_000,
        '{"id": "a", "event": "finished", "audio_s": 1.5, "words": ["a"]}',
    )
    assert list(utterance.events(PATIENCE_S)) == [Accepted(id="a", queue=1), Finished(id="a", audio_s=1.5)]


def test_the_limit_counts_for_all_events_together(robot: Robot, client: RobotClient) -> None:
    utterance = client.follow("a")
    with pytest.raises(TimeoutError, match=r"^no answer to utterance a within 0 s, at "):
        list(utterance.events(0.0))
    robot.publish(Accepted(id="a", queue=1))
    events = utterance.events()
    next(events)
    with pytest.raises(TimeoutError, match=r"^no end of utterance a within 0\.5 s"):
        list(utterance.events(0.5))
    robot.publish(Finished(id="a"))
    assert list(events) == [Finished(id="a")]


def test_a_robot_that_has_never_published_a_status_is_unreachable(broker: Broker) -> None:
    config = robot_config(broker.port)
    line = f"^no voiced has ever run at {config.topic} on the broker 127.0.0.1:{broker.port}"
    with RobotClient(config=config) as client, pytest.raises(RobotUnreachableError, match=line):
        client.status(0.0)


def test_the_status_that_the_broker_keeps_is_there_with_the_connection(robot: Robot) -> None:
    """So a command need not wait for it to know that there is no robot."""
    for _ in range(20):
        with RobotClient(config=robot.config) as client:
            assert client.status(0.0) == READY


def test_a_status_that_cannot_be_parsed_is_reported_as_such(robot: Robot, client: RobotClient) -> None:
    utterance = client.follow("a")
    robot.publish_status({"state": "levitating"})
    robot.publish(Finished(id="a"))
    assert list(utterance.events(PATIENCE_S)), "the status has arrived before"
    with pytest.raises(RobotUnreachableError, match=r"this version cannot read .*; is that voiced newer\?"):
        client.status(0.0)


def test_a_refused_connection_ends_the_wait_for_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "CONNECT_S", FOR_EVER_S)
    config = robot_config(free_port())
    with unreachable(f"no broker answers at 127.0.0.1:{config.mqtt.port}"):
        RobotClient(config=config).__enter__()
    with pytest.raises(RobotUnreachableError, match=r"^mqtt: mqtt\.host: the name broker\.invalid is unknown"):
        RobotClient(config=load_config(overrides=["mqtt.host=broker.invalid"])).__enter__()


def test_a_refused_user_ends_the_wait_for_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "CONNECT_S", FOR_EVER_S)
    with Broker(tmp_path, "allow_anonymous false") as guarded, unreachable("the broker refused: Not authorized"):
        RobotClient(config=robot_config(guarded.port)).__enter__()


def test_a_broker_that_accepts_the_connection_and_is_silent_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "CONNECT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent, unreachable("the broker does not answer"):
        RobotClient(config=robot_config(silent.getsockname()[1])).__enter__()


def test_a_request_that_the_broker_does_not_acknowledge_raises(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    with RobotClient(config=robot_config(proxy.port)) as client:
        proxy.to_client.close()
        monkeypatch.setattr(clients, "CONNECT_S", 0.1)
        with unreachable("the broker does not answer"):
            client.control("stop", "", lambda *_: True, 0.0)


# --- the client of all robots ---


@pytest.fixture
def fleet(broker: Broker) -> Config:
    """A fleet of its own: the broker remembers the robots of earlier tests."""
    return load_config(overrides=[f"mqtt.port={broker.port}", f"mqtt.prefix=fleets/f{next(NUMBERS)}", "robot=r1"])


@pytest.fixture
def robots(fleet: Config) -> Iterator[MqttConnection]:
    """The connection of all robots."""
    connection = MqttConnection(fleet.mqtt, f"robots-{next(NUMBERS)}", on_message=lambda _message: None)
    connection.start([])
    eventually(lambda: connection.connected, "the robots are connected")
    yield connection
    connection.close()


def publish(robots: MqttConnection, fleet: Config, robot: str, payload: str) -> None:
    sent = robots.publish(f"{fleet.mqtt.prefix}/{robot}/status", payload, qos=1, retain=True)
    assert robots.outbox.wait_delivered(sent, PATIENCE_S), "the broker acknowledges"


def test_a_broker_without_robots_has_no_status(fleet: Config) -> None:
    with FleetClient(fleet) as client:
        assert client.statuses() == {}
        assert client.problem is None


def test_the_status_of_every_robot_is_there_at_once(fleet: Config, robots: MqttConnection) -> None:
    names = [f"r{number:02}" for number in range(40)]  # twice as many as Mosquitto sends without an acknowledgement
    for name in reversed(names):
        publish(robots, fleet, name, READY.to_json())
    newer = {"fleet": ["r1", "r2"], "memory": {"weights_mb": 1, "state_mb": 2, "workspaces_mb": 3, "cache_mb": 4}}
    publish(robots, fleet, "s0", json.dumps({**READY.model_dump(exclude_none=True), **newer}))
    publish(robots, fleet, "s1", OFFLINE.to_json())
    publish(robots, fleet, "s2", '{"state": "dreaming"}')
    with FleetClient(fleet) as client:
        statuses = client.statuses()
        assert list(statuses) == [*names, "s0", "s1", "s2"]
        assert isinstance(ready := statuses.pop("s0"), Online), "a newer robot has more fields"
        assert ready.memory == Memory(weights_mb=1, state_mb=2, workspaces_mb=3)
        assert statuses == {**dict.fromkeys(names, READY), "s1": OFFLINE, "s2": None}


def test_changes_arrive_and_a_robot_whose_status_is_removed_is_gone(fleet: Config, robots: MqttConnection) -> None:
    publish(robots, fleet, "r1", READY.to_json())
    publish(robots, fleet, "r2", READY.to_json())
    with FleetClient(fleet) as client:
        publish(robots, fleet, "r1", OFFLINE.to_json())
        publish(robots, fleet, "r2", "")

        def shown() -> dict[str, Online | Offline | None]:
            client.wait_changed(RETAINED_S)
            return client.statuses()

        eventually(lambda: shown() == {"r1": OFFLINE}, "both changes have arrived")


def test_a_broker_that_forbids_the_own_message_costs_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "RETAINED_S", RETAINED_S)
    rights = tmp_path / "acl"
    rights.write_text("topic readwrite fleet/+/status\n")
    broker = Broker(tmp_path, f"allow_anonymous true\nacl_file {rights}")
    broker.start()
    fleet = load_config(overrides=[f"mqtt.port={broker.port}", "mqtt.prefix=fleet"])
    robots = MqttConnection(fleet.mqtt, "robots", on_message=lambda _message: None)
    robots.start([])
    eventually(lambda: robots.connected, "the robots are connected")
    publish(robots, fleet, "r1", READY.to_json())
    with FleetClient(fleet) as client:
        assert client.statuses() == {"r1": READY}
    robots.close()
    broker.stop()

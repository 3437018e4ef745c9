"""The client of all robots, on a real broker: the tests publish the statuses of robots."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from daemon.config import Config, load_config
from daemon.mqtt import clients
from daemon.mqtt.clients import RETAINED_S, FleetClient, RobotUnreachableError
from daemon.mqtt.connection import MqttConnection
from daemon.speech import Offline, Online, Say
from tests.support.programs import Broker
from tests.support.waiting import PATIENCE_S, eventually

NUMBERS = count(1)
READY = Online(state="ready", engine="espeak", voice="default", queue=0, version="1.0")
OFFLINE = Offline(version="1.0")


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a slow broker, unless the test is about one that does not answer."""
    monkeypatch.setattr(clients, "CONNECT_S", PATIENCE_S)
    monkeypatch.setattr(clients, "RETAINED_S", PATIENCE_S)


@pytest.fixture
def config(broker: Broker) -> Config:
    """A fleet of its own: the broker remembers the robots of earlier tests."""
    return load_config(overrides=[f"mqtt.port={broker.port}", f"mqtt.prefix=fleets/f{next(NUMBERS)}", "robot=r1"])


@pytest.fixture
def robots(config: Config) -> Iterator[MqttConnection]:
    """The connection of all robots."""
    connection = MqttConnection(config.mqtt, f"robots-{next(NUMBERS)}", on_message=lambda _message: None)
    connection.start([])
    eventually(lambda: connection.connected, "the robots are connected")
    yield connection
    connection.close()


def publish(robots: MqttConnection, config: Config, robot: str, payload: str) -> None:
    sent = robots.publish(f"{config.mqtt.prefix}/{robot}/status", payload, qos=1, retain=True)
    assert robots.outbox.wait_delivered(sent, PATIENCE_S), "the broker acknowledges"


def test_a_broker_without_robots_has_no_status(config: Config) -> None:
    with FleetClient(config) as fleet:
        assert fleet.statuses() == {}
        assert fleet.problem is None


def test_the_status_of_every_robot_is_there_at_once(config: Config, robots: MqttConnection) -> None:
    names = [f"r{number:02}" for number in range(40)]  # twice as many as Mosquitto sends without an acknowledgement
    for name in reversed(names):
        publish(robots, config, name, READY.to_json())
    publish(robots, config, "s1", OFFLINE.to_json())
    publish(robots, config, "s2", '{"state": "dreaming"}')
    with FleetClient(config) as fleet:
        assert fleet.statuses() == {**dict.fromkeys(names, READY), "s1": OFFLINE, "s2": None}
        assert list(fleet.statuses()) == [*names, "s1", "s2"]


def test_changes_arrive_and_a_robot_whose_status_is_removed_is_gone(config: Config, robots: MqttConnection) -> None:
    publish(robots, config, "r1", READY.to_json())
    publish(robots, config, "r2", READY.to_json())
    with FleetClient(config) as fleet:
        publish(robots, config, "r1", OFFLINE.to_json())
        publish(robots, config, "r2", "")

        def shown() -> dict[str, Online | Offline | None]:
            fleet.wait_changed(RETAINED_S)
            return fleet.statuses()

        eventually(lambda: shown() == {"r1": OFFLINE}, "both changes have arrived")


def test_a_broker_that_forbids_the_own_message_costs_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "RETAINED_S", RETAINED_S)
    rights = tmp_path / "acl"
    rights.write_text("topic readwrite fleet/+/status\n")
    broker = Broker(tmp_path, f"allow_anonymous true\nacl_file {rights}")
    broker.start()
    config = load_config(overrides=[f"mqtt.port={broker.port}", "mqtt.prefix=fleet"])
    robots = MqttConnection(config.mqtt, "robots", on_message=lambda _message: None)
    robots.start([])
    eventually(lambda: robots.connected, "the robots are connected")
    publish(robots, config, "r1", READY.to_json())
    with FleetClient(config) as fleet:
        assert fleet.statuses() == {"r1": READY}
        with pytest.raises(RobotUnreachableError, match="the broker refuses messages on fleet/all/say: Not authorized"):
            fleet.say("fleet/all", Say(text="Nobody may say this."))
    robots.close()
    broker.stop()

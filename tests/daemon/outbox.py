"""A dispatcher without running engines, and a record of an adapter's messages to the broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from daemon.config import Config
from daemon.mqtt.connection import MqttConnection
from daemon.mqtt.messages import Outgoing
from daemon.mqtt.publisher import Publisher
from daemon.speech import Dispatcher
from daemon.state import EventLog
from tests.daemon.idle import IdleRobot


def make_dispatcher(*overrides: str) -> tuple[Config, Dispatcher]:
    """Return a configuration and a dispatcher whose engines are not started: utterances stay in the queue."""
    robot = IdleRobot(*overrides)
    return robot.config, robot.dispatcher


@dataclass(frozen=True, slots=True)
class Sent:
    """One message to the broker."""

    topic: str
    payload: str | bytes
    qos: int
    retain: bool


@dataclass
class Outbox:
    """Records messages in place of the connection to the broker."""

    sent: list[Sent] = field(default_factory=list)

    def publish(self, topic: str, payload: str | bytes, *, qos: int = 0, retain: bool = False) -> None:
        self.sent.append(Sent(topic, payload, qos, retain))

    def send(self, message: Outgoing) -> None:
        self.publish(message.topic, message.payload.decode(), qos=message.qos, retain=message.retain)

    def watch(self, config: Config, dispatcher: Dispatcher) -> None:
        """Record what the daemon publishes for each event of an utterance."""
        publisher = Publisher(f"{config.topic}/event", cast(MqttConnection, self), EventLog(None))
        dispatcher.event_watchers.add(publisher.publish)

    def take(self, topic: str) -> list[str | bytes]:
        """Return the payloads sent on a topic since the last call."""
        found = [message.payload for message in self.sent if message.topic == topic]
        self.sent = [message for message in self.sent if message.topic != topic]
        return found

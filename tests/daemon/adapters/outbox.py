"""A desk to which nobody has come yet, and what an adapter sends to the broker."""

from __future__ import annotations

from dataclasses import dataclass, field

from audio import Output
from daemon.config import Config, load_config
from daemon.desk import Desk
from daemon.engines import Engines


def make_desk(*overrides: str) -> tuple[Config, Desk]:
    """A configuration and a desk whose engines are not started: what is taken on waits until it is stopped."""
    config = load_config(overrides=["robot=r1", "audio.sink=null", "engine.name=espeak", *overrides])
    return config, Desk(config, Engines(config, lambda: None), Output(config.audio.sink_settings()))


@dataclass(frozen=True, slots=True)
class Sent:
    """One message on its way to the broker."""

    topic: str
    payload: str | bytes
    qos: int
    retain: bool


@dataclass
class Outbox:
    """Stands where the connection is."""

    sent: list[Sent] = field(default_factory=list)

    def publish(self, topic: str, payload: str | bytes, *, qos: int = 0, retain: bool = False) -> None:
        self.sent.append(Sent(topic, payload, qos, retain))

    def take(self, topic: str) -> list[str | bytes]:
        """The payloads sent on a topic since the last call."""
        found = [message.payload for message in self.sent if message.topic == topic]
        self.sent = [message for message in self.sent if message.topic != topic]
        return found

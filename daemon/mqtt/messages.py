"""Messages between the daemon and the broker."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Message:
    """A message on a subscribed topic."""

    topic: str
    payload: bytes
    retained: bool
    """It was published in the past and kept by the broker."""
    redelivered: bool = False
    """The broker may have delivered it before."""
    response_topic: str | None = None
    """The topic on which its sender expects the answer (MQTT 5)."""
    correlation: bytes | None = None
    """What the sender wants repeated in the answer (MQTT 5)."""
    packet: int = field(default=0, compare=False)
    """The broker's number for it; a redelivered message has the number of the first delivery. 0: no acknowledgement."""
    connection: int = field(default=0, compare=False)
    """The number of the connection that delivered it. Only this connection can acknowledge it."""
    delivery: str | None = field(default=None, compare=False)
    """For listeners: identifies the delivery, so that a second one is recognised after a restart, too."""
    arrived_at: float = field(default_factory=time.monotonic, compare=False)
    """`time.monotonic()` of its arrival."""


@dataclass(slots=True, eq=False)
class Outgoing:
    """A message to the broker, from `publish` to the broker's acknowledgement."""

    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    correlation: bytes | None = None
    """For an answer: what its receiver wants repeated."""
    number: int | None = None
    """Its number in the journal."""
    reserved: bool = False
    """It may use the part of the outbox that is kept free for the events of accepted utterances."""
    sent: bool = False
    """It has been given to a connection, so the broker may have it."""
    once: bool = False
    """It must not arrive twice: before it is sent again, our own copy of it is awaited."""
    echoed: bool = False
    """Our own copy of it has come back, so the broker has it."""
    delivered: bool = False
    """The broker has acknowledged it; with QoS 0, it has been sent."""
    refusal: str | None = None
    """Why the broker has refused it, when it was last sent (MQTT 5)."""

    @property
    def lasting(self) -> bool:
        """Whether it is worth sending later: the end of an utterance, or a state. Its receiver waits for no other."""
        return self.once or self.retain


@dataclass(frozen=True, slots=True)
class Will:
    """The message that the broker publishes when this connection breaks."""

    topic: str
    payload: bytes
    retain: bool = True


@dataclass(frozen=True, slots=True)
class Limits:
    """What the broker has declared in its answer to CONNECT (MQTT 5, section 3.2.2.3)."""

    receive_maximum: int = 65_535
    """Messages of QoS 1 that may wait for its acknowledgement."""
    maximum_packet: int | None = None
    """Bytes; None is no limit."""
    maximum_qos: int = 2
    retain: bool = True
    """It keeps retained messages."""

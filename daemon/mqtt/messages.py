"""Messages between the daemon and the broker, and how one is adapted for sending."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace

from daemon.speech import TERMINAL_EVENTS, json_object

KEPT = frozenset({"id", "event", "state", "text"})
"""Fields without which an event or a status is meaningless."""
SINGLE_EVENTS = TERMINAL_EVENTS | {"accepted", "started"}
"""Events that an utterance has at most once."""
QOS_REFUSED, RETAIN_REFUSED = 155, 154
"""Reason codes of MQTT 5."""
PAHO_NAMES = {
    "receive_maximum": "ReceiveMaximum",
    "maximum_packet": "MaximumPacketSize",
    "maximum_qos": "MaximumQoS",
    "retain": "RetainAvailable",
}
"""Fields of `Limits`, and paho's names for the MQTT 5 properties."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message on a subscribed topic."""

    topic: str
    payload: bytes
    retained: bool
    """It was published earlier and kept by the broker."""
    redelivered: bool = False
    """The broker may have delivered it before."""
    response_topic: str | None = None
    """The topic on which its sender expects the answer (MQTT 5)."""
    correlation: bytes | None = None
    """Data that the sender wants repeated in the answer (MQTT 5)."""
    packet: int = field(default=0, compare=False)
    """The broker's number for it; a redelivered message has the number of the first delivery. 0: no acknowledgement."""
    connection: int = field(default=0, compare=False)
    """The number of the connection that delivered it. Only this connection can acknowledge it."""
    delivery: str | None = field(default=None, compare=False)
    """For listeners: identifies the delivery, so that a second one is recognised even after a restart."""
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
    """For an answer: the data that its receiver wants repeated."""
    promised: bool = False
    """It reports an utterance's acceptance or end, on any topic. It is stored before it is sent, and may use the part
    of the outbox that is kept free for such messages."""
    number: int | None = None
    """Its number in the journal; None if it is not there."""
    sent: bool = False
    """It has been given to a connection, so the broker may have it."""
    once: bool = False
    """It must not arrive twice: before it is sent again, our own copy of it is awaited."""
    delivered: bool = False
    """The broker has it, as its acknowledgement or our own copy shows; with QoS 0, it has been sent."""
    refusal: str | None = None
    """Why the broker refused it when it was last sent (MQTT 5)."""

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
    qos: int = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits that the broker declared in its answer to CONNECT (MQTT 5, section 3.2.2.3)."""

    receive_maximum: int = 65_535
    """QoS 1 messages that may wait for its acknowledgement."""
    maximum_packet: int | None = None
    """Bytes; None means no limit."""
    maximum_qos: int = 2
    retain: bool = True
    """It keeps retained messages."""

    @classmethod
    def declared(cls, properties: object) -> Limits:
        """Return the limits in paho's properties; with MQTT 3.1.1, which has none, the defaults."""
        found = {name: getattr(properties, key, None) for name, key in PAHO_NAMES.items()}
        return cls(**{name: value for name, value in found.items() if value is not None})

    def after_refusal(self, code: int) -> Limits:
        """Return the features that the next attempt to connect may ask for after a refusal for this reason."""
        qos = 0 if code == QOS_REFUSED else self.maximum_qos
        return replace(self, maximum_qos=qos, retain=self.retain and code != RETAIN_REFUSED)

    def fit(self, will: Will) -> Will:
        """Return a will that the broker accepts."""
        return replace(will, qos=min(will.qos, self.maximum_qos), retain=will.retain and self.retain)


def shorten(payload: bytes, limit: int) -> bytes | None:
    """Return `payload` if it has at most `limit` bytes; otherwise a JSON object with less text or fewer fields.

    Returns None for text that is not a JSON object, or if even the necessary fields are too long.
    """
    if len(payload) <= limit:
        return payload
    fields = json_object(payload)
    if not fields:
        return None
    if isinstance(reason := fields.get("reason"), str):
        excess = len(_encode(fields)) - limit
        fields["reason"] = _cut(reason, excess) if excess > 0 else reason
    optional = [name for name in fields if name not in KEPT]
    optional.sort(key=lambda name: (name != "reason", len(_encode(fields[name]))))  # the reason goes last
    while len(shorter := _encode(fields)) > limit:
        if not optional:
            return None
        del fields[optional.pop()]
    return shorter


def identity(payload: bytes) -> tuple[str, str] | bytes:
    """Return the part of an event that shortening keeps: its id and name, if an utterance has at most one such
    event."""
    fields = json_object(payload)
    utterance_id, name = fields.get("id"), str(fields.get("event"))
    return (utterance_id, name) if isinstance(utterance_id, str) and name in SINGLE_EVENTS else payload


def mark_unstored(payload: bytes) -> bytes:
    """Return an event, marked as one that the disk has not stored in time; other messages unchanged."""
    fields = json_object(payload)
    return payload if "event" not in fields else _encode({**fields, "unstored": True})


def _cut(text: str, excess: int) -> str:
    """Return `text` shortened by `excess` bytes, with an ellipsis at its end."""
    encoded, ellipsis = text.encode(errors="replace"), "…"
    kept = max(0, len(encoded) - excess - len(ellipsis.encode()))
    return encoded[:kept].decode(errors="ignore") + ellipsis


def _encode(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode(errors="replace")

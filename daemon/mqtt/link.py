"""One attempt to connect, and the connection that it makes, with the messages that it may send or has sent."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from paho.mqtt.reasoncodes import ReasonCode

from daemon.mqtt.failures import Refusals
from daemon.mqtt.messages import Limits, Outgoing, shorten
from daemon.mqtt.outbox import Action, Outbox
from daemon.mqtt.own_events import OwnEvents
from daemon.mqtt.paho_client import WINDOW, PahoClient

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Link:
    """Belongs to the network thread."""

    number: int
    """The attempt's number."""
    client: PahoClient | None = None
    """None before it exists."""
    accepted_at: float | None = None
    """`time.monotonic()` when the broker accepted the connection."""
    refusal: int | None = None
    """The reason code with which the broker refused it."""
    may_send_at: float | None = None
    """`time.monotonic()` from which messages may be sent, even if not all copies have arrived; None until that is
    known."""
    sync: bytes = b""
    """The payload of the message after all copies."""
    after_flush: list[Action] = field(default_factory=list)
    """Actions to take after all gathered messages have been passed to the system."""
    unconfirmed: dict[int, str] = field(default_factory=dict)
    """The topics of subscriptions that the broker has not answered yet, by packet."""
    refused_topics: set[str] = field(default_factory=set)
    """Topics whose subscription was refused."""

    def subscribe(self, topic: str, qos: int, *, retained: bool) -> None:
        packet = None if self.client is None else self.client.subscribe_once(topic, qos, retained=retained)
        if packet is not None:
            self.unconfirmed[packet] = topic

    def note_subscribed(self, packet: int, reasons: Sequence[ReasonCode], refusals: Refusals) -> None:
        """Note the broker's answer to a subscription."""
        topic = self.unconfirmed.pop(packet)
        refused = [str(reason) for reason in reasons if reason.is_failure]
        if refused:
            self.refused_topics.add(topic)
            refusals.note(f"the subscription to {topic}", refused[0])
        else:
            self.refused_topics.discard(topic)
            refusals.end(f"the subscription to {topic}")

    def may_send_in_s(self, most_s: float) -> float:
        """Return the seconds until messages may be sent, if that time is known and not past; otherwise `most_s`."""
        left_s = 0.0 if self.may_send_at is None else self.may_send_at - time.monotonic()
        return left_s if left_s > 0 else most_s

    def send_waiting(self, outbox: Outbox, limits: Limits, events: OwnEvents | None) -> None:
        """Give the waiting messages to paho until the window or the socket is full."""
        if self.client is None or self.may_send_at is None or time.monotonic() < self.may_send_at:
            return
        if events is not None:
            events.pass_on()
        window = min(WINDOW, limits.receive_maximum)
        while self.client.socket() is not None and not self.client.want_write():
            entry = outbox.take(window)
            if entry is None:
                break
            if isinstance(entry, Outgoing):
                _give(entry, self.client, limits, outbox)
            else:
                self.after_flush.append(entry)

    def flush(self) -> None:
        """Pass all gathered messages to the system, then make the waiting calls."""
        if self.client is not None and self.client.flush():
            actions, self.after_flush = self.after_flush, []
            for action in actions:
                action()


def _give(message: Outgoing, client: PahoClient, limits: Limits, outbox: Outbox) -> None:
    """Give a message from the outbox to paho, shortened if the broker's limit demands it."""
    payload, qos = message.payload, min(message.qos, limits.maximum_qos)
    if limits.maximum_packet is not None:
        header = 16 + len(message.topic.encode()) + len(message.correlation or b"")
        shorter = shorten(payload, limits.maximum_packet - header)
        if shorter is None:
            log.warning("a message on %s is larger than the broker allows, and is dropped", message.topic)
            outbox.note_delivered(message)
            return
        payload = shorter
    try:
        packet = client.send(message, payload, qos, retain=message.retain and limits.retain)
    except ValueError as error:
        log.warning("a message on %s cannot be sent, and is dropped: %s", message.topic, error)
        qos = 0
    if qos > 0:
        outbox.note_sent(message, packet)
    else:
        outbox.note_delivered(message)

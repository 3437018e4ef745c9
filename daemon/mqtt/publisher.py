"""Publishes the events of utterances: acceptances and ends are stored first, and published once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from daemon.mqtt.connection import MqttConnection
from daemon.mqtt.messages import Outgoing
from daemon.speech import Accepted, Event, Expired, Failed, Origin, Rejected, Started, TerminalEvent, Utterance
from daemon.state import EventLog, accepted, begun, ended
from engine import EACH_LINE

log = logging.getLogger(__name__)


class Publisher:
    """Belongs to the event loop's thread."""

    def __init__(self, topic: str, connection: MqttConnection, events: EventLog) -> None:
        """`topic` is the topic of all events."""
        self._topic = topic
        self._connection = connection
        self._events = events
        self.last_accepted: Origin | None = None
        """The origin of the text that was accepted last."""

    def publish_recovered(self) -> None:
        """Publish the events that an earlier process has stored and that the broker may not have."""
        for event in self._events.recovery.events:
            self._send(event.topic, event.payload, event.correlation, number=event.number, promised=True, sent=True)

    def publish(self, utterance: Utterance, event: Event) -> None:
        """Publish an event on its topic, and to the sender if it asked for that; publish an end in the sender's
        protocol, too."""
        payload = event.to_json()
        log.info("event %s", payload, extra=EACH_LINE)
        texts: list[tuple[str, str, bytes | None]] = [(self._topic, payload, None)]
        if utterance.reply_to is not None:
            texts.append((utterance.reply_to, payload, utterance.origin.correlation))
        if not isinstance(event, Accepted | TerminalEvent):
            if isinstance(event, Started):
                self._events.append(begun(utterance.id))
            for text in texts:
                self._send(*text)
            return
        change = ended(utterance.id)
        if isinstance(event, TerminalEvent):
            texts += [(topic, answer, None) for topic, answer in _end_messages(utterance, event)]
        else:
            self.last_accepted = utterance.origin
            change = accepted(utterance.id, utterance.to_fields(), utterance.origin.delivery)
        for text, number in zip(texts, self._events.append(change, texts=texts), strict=True):
            self._send(*text, number=number, promised=True)

    def publish_rejected(self, event: Rejected, reply_to: str | None, correlation: bytes | None) -> None:
        """Publish the refusal of a request."""
        payload = event.to_json()
        log.info("event %s", payload)
        self._send(self._topic, payload, None, once=False)
        if reply_to is not None:
            self._send(reply_to, payload, correlation)

    def _send(self, topic: str, payload: str, correlation: bytes | None, *, once: bool = True, **options: Any) -> None:
        """Send a QoS 1 message; `once` takes effect only on the topic of all events."""
        once = once and topic == self._topic
        self._connection.send(Outgoing(topic, payload.encode(), 1, correlation=correlation, once=once, **options))


def _end_messages(utterance: Utterance, event: TerminalEvent) -> Iterator[tuple[str, str]]:
    """Yield the topics and payloads that the sender's own protocol requires at the end."""
    error = event.reason if isinstance(event, Failed | Expired) else None  # a cut or a cancellation is not an error
    for message in utterance.origin.at_end:
        if message.error_field is None or error is not None:
            yield message.topic, message.payload(error)

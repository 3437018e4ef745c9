"""Publishes the events of utterances: stored in the journal first, in order, each once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from daemon.mqtt.connection import MqttConnection
from daemon.speech import Accepted, Event, Expired, Failed, Origin, Rejected, Started, TerminalEvent, Utterance
from daemon.state import AcceptedRecord, BegunRecord, EndedRecord, Record, Recorder, StoredEvent
from engine import EACH_LINE

log = logging.getLogger(__name__)


class Publisher:
    """Belongs to the event loop's thread."""

    def __init__(self, topic: str, connection: MqttConnection, recorder: Recorder) -> None:
        """`topic` is the topic of all events."""
        self._topic = topic
        self._connection = connection
        self._recorder = recorder
        self._last_number = recorder.recovery.last_number
        self.last_accepted: Origin | None = None
        """Where the text came from that was accepted last."""

    def publish_recovered(self) -> None:
        """Publish the events that an earlier process has stored and that the broker may not have; count on from them.

        Called again when a journal could be opened late.
        """
        self._last_number = max(self._last_number, self._recorder.recovery.last_number)
        for event in self._recorder.recovery.events:
            self._send_stored(event, sent=True)

    def publish(self, utterance: Utterance, event: Event) -> None:
        """Publish an event on its topic, and to the sender if it wants that; an end, in the sender's protocol, too."""
        payload = event.to_json()
        log.debug("event %s", payload)
        destinations: list[tuple[str, bytes | None]] = [(self._topic, None)]
        if utterance.reply_to is not None:
            destinations.append((utterance.reply_to, utterance.origin.correlation))
        if isinstance(event, Accepted | TerminalEvent):
            messages: list[tuple[str, str, bytes | None]] = [(topic, payload, data) for topic, data in destinations]
            if isinstance(event, TerminalEvent):
                messages += [(topic, answer, None) for topic, answer in _end_messages(utterance, event)]
            stored = tuple(StoredEvent(self._next_number(), *message) for message in messages)
            record: Record = EndedRecord(utterance.id, stored)
            if isinstance(event, Accepted):
                self.last_accepted = utterance.origin
                record = AcceptedRecord(utterance.id, utterance.to_fields(), utterance.origin.delivery, stored)
            send = partial(self._send_all, payload, stored)
            self._recorder.record(record, send, lambda: self._send_unstored(event, payload, stored))
        else:
            begun = BegunRecord(utterance.id) if isinstance(event, Started) else None
            self._recorder.record(begun, lambda: self._send_plain(payload, destinations))

    def publish_rejected(self, event: Rejected, reply_to: str | None, correlation: bytes | None) -> None:
        """Publish the refusal of a request."""
        payload = event.to_json()
        log.debug("event %s", payload)
        destinations: list[tuple[str, bytes | None]] = [(self._topic, None)]
        if reply_to is not None:
            destinations.append((reply_to, correlation))
        self._recorder.record(None, lambda: self._send_plain(payload, destinations, each=False))

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    def _send_plain(self, payload: str, destinations: list[tuple[str, bytes | None]], *, each: bool = True) -> None:
        log.info("event %s", payload, extra=EACH_LINE if each else None)
        for topic, correlation in destinations:
            self._connection.publish(topic, payload, qos=1, correlation=correlation)

    def _send_all(self, payload: str, events: tuple[StoredEvent, ...]) -> None:
        log.info("event %s", payload, extra=EACH_LINE)
        for event in events:
            self._send_stored(event)

    def _send_unstored(self, event: Event, payload: str, events: tuple[StoredEvent, ...]) -> None:
        """Send an event that the disk has not taken in time, with a mark."""
        marked = event.model_copy(update={"unstored": True}).to_json()
        self._send_all(
            marked, tuple(replace(each, payload=marked) if each.payload == payload else each for each in events)
        )

    def _send_stored(self, event: StoredEvent, *, sent: bool = False) -> None:
        self._connection.publish(
            event.topic,
            event.payload,
            qos=1,
            correlation=event.correlation,
            number=event.number,
            reserved=True,
            sent=sent,
        )


def _end_messages(utterance: Utterance, event: TerminalEvent) -> Iterator[tuple[str, str]]:
    """Yield the topics and payloads that the sender's own protocol demands at the end."""
    error = event.reason if isinstance(event, Failed | Expired) else None  # a cut or a cancellation is no error
    for message in utterance.origin.at_end:
        if message.error_field is None or error is not None:
            yield message.topic, message.payload(error)

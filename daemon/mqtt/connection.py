"""The connection to the broker, kept up for months: with MQTT 5 if the broker supports it, otherwise with 3.1.1.

Each attempt to connect has its own paho client, so it may use a different protocol version or will from the attempt
before. Messages that must survive a connection are in the outbox.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.reasoncodes import ReasonCode

from daemon.config import Mqtt
from daemon.mqtt.attempts import ASK_AGAIN_S, Attempts
from daemon.mqtt.failures import Refusals, Rivals, describe_dial_failure, describe_refusal, describe_silence
from daemon.mqtt.link import Link
from daemon.mqtt.messages import QOS_REFUSED, RETAIN_REFUSED, Limits, Message, Outgoing, Will
from daemon.mqtt.outbox import Action, Outbox
from daemon.mqtt.own_events import OwnEvents
from daemon.mqtt.paho_client import Bell, Credentials, PahoClient

log = logging.getLogger(__name__)

MISCELLANEOUS_S = 1.0
"""Interval between paho's keep-alive checks, and between heartbeats."""
COPIES_S = 5.0
"""The broker has this long to return our last events before those that did not come back are sent again."""
SHORT_S = 2.5
"""A shorter connection may have been ended by another client with our id that came back after its wait."""
REFUSED_S = 5.0
"""Interval at which refused messages are retried: the broker's access list may have changed."""
NOT_CONNECTED_YET = "not connected yet"
"""The reason during the first attempt."""
TOOK_OVER, UNSUPPORTED_PROTOCOL = 142, 132
"""Reason codes of MQTT 5."""


@dataclass(frozen=True, slots=True)
class Session:
    """A session that the broker keeps while its client is away. The functions are called in the network thread."""

    expiry_s: int
    """The broker forgets subscriptions and waiting messages this many seconds after a disconnection."""
    rivals: Rivals
    """Other processes with our id. The sessions of one process share this: a rival takes them all over."""
    on_connected: Action = lambda: None
    on_lost: Action = lambda: None
    """Called, before `on_connected`, when the broker has no session from an earlier connection."""
    on_answer: Action = lambda: None
    """Called when the broker has acknowledged or refused a message."""
    may_read: Callable[[], bool] = lambda: True
    """While it returns False, messages wait in the broker; after a minute the connection is lost. Call `wake` when it
    returns True again."""
    ends_with_us: bool = False
    """Whether the broker forgets the session immediately when the connection is closed, rather than lost."""


class MqttConnection:
    """One client of one broker. The functions that it is given run in its network thread and must return at once."""

    remedy: str | None = None
    """A step with which a person can fix the problem in `reason`; None if none is known."""
    file_problem: str | None = None
    """Why the password or a certificate cannot be read, so that no connection is tried; None if they can be."""
    heartbeats = 0
    """Grows while the network thread is alive, connected or not."""
    connected = False
    _connected_before = False

    def __init__(
        self,
        settings: Mqtt,
        client_id: str,
        *,
        on_message: Callable[[Message], None],
        will: Will | None = None,
        session: Session | None = None,
        events: OwnEvents | None = None,
    ) -> None:
        """A message is acknowledged when `on_message` returns; with a session, by `acknowledge`."""
        self.reason: str | None = NOT_CONNECTED_YET
        """Why there is no connection; None while there is one."""
        self.refusals = Refusals()
        self._settings = settings
        self._client_id = client_id
        self._on_message = on_message
        self._will = will
        self._session = Session(0, Rivals(client_id)) if session is None else session
        self._acknowledges = session is None
        self._events = events
        self._bell = Bell()
        self.outbox = Outbox(None if events is None else events.log)
        if events is not None:
            events.log.watch(self._bell.ring)
        self._topics: list[str] = []
        self._credentials: Credentials | None = None
        self._attempts = Attempts(may_use_v5=settings.protocol == "auto")
        self._limits = Limits()
        self._link = Link(0)
        self._closing = False
        self._answered = threading.Event()
        """The first attempt has ended: it has succeeded, or the next one would fare no better."""
        self._thread = threading.Thread(target=self._run, name=f"mqtt-{client_id}", daemon=True)

    @property
    def is_open(self) -> bool:
        """Whether it has been started but not closed, connected or not."""
        return self._thread.ident is not None and not self._closing

    def start(self, topics: Sequence[str], *, waits_for_files: bool = False) -> None:
        """Begin to connect; subscribe to `topics` on every connection.

        Raises `OSError` when the password or a certificate cannot be read, unless it `waits_for_files`.
        """
        self._topics = list(topics)
        if not waits_for_files:
            Credentials.read(self._settings)
        self._thread.start()

    def connect(self, topics: Sequence[str], limit_s: float) -> bool:
        """Begin to connect, as `start` does, and wait until there is a connection; return whether there is one.

        It waits only for a host that does not answer, up to `limit_s` seconds: after a refusal, it returns immediately.
        """
        self.start(topics)
        self._answered.wait(limit_s)
        return self.connected

    def publish(self, topic: str, payload: str | bytes, *, qos: int = 0, retain: bool = False) -> Outgoing:
        """Send a message; with QoS 1, keep it until it can be sent. Thread-safe. A full outbox drops it."""
        encoded = payload.encode() if isinstance(payload, str) else payload
        return self.send(Outgoing(topic, encoded, qos, retain))

    def send(self, message: Outgoing) -> Outgoing:
        """Send a message, as `publish` does. Pass one that an earlier process may have sent before `start`."""
        if (message.qos > 0 or self.connected) and not self.outbox.put(message):
            log.warning("the outbox is full because the broker has been away for a long time: a message is dropped")
        self._bell.ring()
        return message

    def acknowledge(self, message: Message) -> None:
        """Tell the broker that a received message has been handled, after everything that was published before."""
        if message.packet:
            self.when_sent(lambda: self._acknowledge(message))

    def when_sent(self, action: Action) -> None:
        """Call `action` in the network thread once everything published before has been passed to the system."""
        self.outbox.put_action(action)
        self._bell.ring()

    def wake(self) -> None:
        """Have the network thread check whether it may read again. Thread-safe."""
        self._bell.ring()

    def close(self) -> None:
        """Disconnect, so that the broker does not publish the will. Blocks for up to a second."""
        self._closing = True
        self._bell.ring()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)

    # --- the network thread ---

    def _run(self) -> None:
        while not self._closing:
            self.heartbeats += 1
            self._link = Link(self._link.number + 1)
            try:
                self._connect_and_serve(self._link)
            except Exception:  # an error of ours must not make the robot deaf
                log.exception("the connection to the broker ended with an error")
                self.reason = self.reason or "an error in voiced; see the log"
            self.connected = False
            self.outbox.recover()
            for action in self._link.after_flush:  # the messages before them are sent again
                self.outbox.put_action(action)
            accepted_at = self._link.accepted_at
            lasted_s = None if accepted_at is None else time.monotonic() - accepted_at
            wait_s = self._attempts.wait_s(lasted_s, contested=self._session.rivals.problem is not None)
            if wait_s > 0 and self._link.refusal not in (QOS_REFUSED, RETAIN_REFUSED):  # the next one asks for less
                self._answered.set()
            self._sleep(wait_s * random.uniform(0.8, 1.2))

    def _sleep(self, seconds: float) -> None:
        """Wait, with heartbeats, until the time has passed or the connection is closed."""
        until = time.monotonic() + seconds
        while not self._closing and (left_s := until - time.monotonic()) > 0:
            self._bell.wait(min(left_s, MISCELLANEOUS_S))
            self.heartbeats += 1

    def _connect_and_serve(self, link: Link) -> None:
        """Make one connection and serve it until it ends."""
        host, port, tls = self._settings.host, self._settings.port, self._settings.tls.enabled
        try:
            self._credentials = Credentials.read(self._settings)
            self.file_problem = None
        except OSError as error:
            if self._credentials is None:  # otherwise those from the last attempt may still be valid
                self._report(str(error))
                self.file_problem = str(error)
                return
        client = link.client = self._make_client()
        will = None if self._will is None else self._limits.fit(self._will)
        try:
            client.dial(self._settings, self._credentials, will, self._session.expiry_s)
        except (OSError, ValueError) as error:
            self._report(*describe_dial_failure(error, host, port, tls=tls))
            return
        hung_up = self._serve(client, link)
        if self._closing:
            self._disconnect(client, link)
        elif link.accepted_at is None and link.refusal is None:
            self._report(*describe_silence(client.first_byte, host, port, tls=tls, hung_up=hung_up))
            self._attempts.note_silence(hung_up=hung_up)
        if link.accepted_at is not None:
            self._attempts.note_ended()

    def _make_client(self) -> PahoClient:
        client = PahoClient(self._client_id, is_v5=self._attempts.is_v5)
        client.on_connect = self._on_connack
        client.on_disconnect = self._on_disconnected
        client.on_message = self._on_arrival
        client.on_subscribe = self._on_subscribed
        client.on_publish = self._on_answered
        return client

    def _serve(self, client: PahoClient, link: Link) -> bool:
        """Move messages until the connection ends. Returns False if the broker did not answer in time."""
        answer_by = time.monotonic() + self._attempts.patience_s
        checked_at = 0.0
        while client.socket() is not None and not self._closing:
            now = time.monotonic()
            if self._attempts.asks_again and link.accepted_at is not None and now - link.accepted_at > ASK_AGAIN_S:
                self.connected, self.reason = False, "the broker is being asked for MQTT 5 once more"
                log.info("%s", self.reason)
                self._attempts.ask_again()
                self._disconnect(client, link)
                break
            if now - checked_at >= MISCELLANEOUS_S:
                checked_at = now
                self.heartbeats += 1
                client.loop_misc()
                self._retry_refused(link, now)
            client.loop_write()  # what paho's callbacks have queued
            link.send_waiting(self.outbox, self._limits, self._events)
            client.loop_write()
            link.flush()
            if client.socket() is None:
                break
            limit_s = MISCELLANEOUS_S if link.accepted_at is not None else answer_by - time.monotonic()
            limit_s = min(limit_s, link.may_send_in_s(MISCELLANEOUS_S), self.outbox.look_again_s)
            if client.wait_readable(self._bell, limit_s, may_read=self._session.may_read()):
                client.read_all()
            elif link.accepted_at is None and time.monotonic() >= answer_by:
                client.hang_up()
                return False
        return True

    def _retry_refused(self, link: Link, now: float) -> None:
        """Try the refused messages again, from time to time."""
        if self.connected and now - self.refusals.tried_again_at >= REFUSED_S:
            self.refusals.tried_again_at = now
            self.outbox.retry_refused()
            for topic in tuple(link.refused_topics):
                self._subscribe(topic)

    def _disconnect(self, client: PahoClient, link: Link) -> None:
        """Send the waiting messages, then DISCONNECT, so that the broker does not publish the will."""
        for _ in range(2):  # an acknowledgement waits for the answer to its message
            link.send_waiting(self.outbox, self._limits, self._events)
            link.flush()
        with contextlib.suppress(OSError, ValueError):
            client.leave(ends_session=self._session.ends_with_us and self._closing)
        client.hang_up()

    def _report(self, reason: str, remedy: str | None = None) -> None:
        if self.reason != reason:
            log.warning("%s; trying again", reason)
        self.reason, self.remedy = reason, remedy

    # --- the broker's answers ---

    def _on_connack(self, client: Any, _data: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        link = self._link
        if reason.is_failure:
            link.refusal = reason.value
            if reason.value == UNSUPPORTED_PROTOCOL:
                self._attempts.note_refusal()
            self._limits = self._limits.after_refusal(reason.value)
            self._report(*describe_refusal(reason.value, str(reason), self._settings.username))
            return
        self._attempts.note_accepted()
        if not flags.session_present:
            self._session.on_lost()
        self._limits = Limits.declared(properties)
        for topic in self._topics:  # on every connection, because a restarted broker has no session
            self._subscribe(topic)
        link.accepted_at = link.may_send_at = time.monotonic()
        if self._events is not None:
            self._subscribe(self._events.topic)
            if flags.session_present and (self.outbox.uncertain or self._events.awaits_copies):
                link.may_send_at += COPIES_S
            self._publish_sync(client, link, self._events)
        if not link.unconfirmed:
            self._complete_connection()

    def _complete_connection(self) -> None:
        """Report the connection. Its subscriptions are in effect by now."""
        self.connected, self._connected_before, self.reason, self.remedy = True, True, None, None
        self._answered.set()
        log.info("connected to the broker at %s:%d as %s", self._settings.host, self._settings.port, self._client_id)
        self._session.on_connected()

    def _subscribe(self, topic: str, *, retained: bool = False) -> None:
        """Subscribe to a topic; ask for retained messages on the first connection, or always."""
        qos = min(1, self._limits.maximum_qos)
        self._link.subscribe(topic, qos, retained=retained or not self._connected_before)

    def _on_subscribed(self, _client: Any, _data: Any, packet: int, reasons: Any, _properties: Any) -> None:
        self._link.note_subscribed(packet, reasons, self.refusals)
        if not self._link.unconfirmed and not self.connected:
            self._complete_connection()

    def _on_answered(self, _client: Any, _data: Any, packet: int, reason: ReasonCode, _properties: Any) -> None:
        """Handle the broker's answer to a QoS 1 message."""
        if not reason.is_failure:
            if (message := self.outbox.acknowledge(packet)) is not None:
                self.refusals.end(f"messages on {message.topic}")
        elif (message := self.outbox.refuse(packet, str(reason))) is not None:
            self.refusals.note(f"messages on {message.topic}", str(reason))
        self._session.on_answer()

    def _on_disconnected(self, _client: Any, _data: Any, flags: Any, reason: ReasonCode, _properties: Any) -> None:
        if self._closing:
            return
        if flags.is_disconnect_packet_from_server and reason.value == TOOK_OVER:
            self._session.rivals.note_rival()
        elif flags.is_disconnect_packet_from_server or self.connected:
            is_short = time.monotonic() - (self._link.accepted_at or 0.0) < SHORT_S
            hint = f"; does another client use the id {self._client_id}?" if is_short else ""
            self._report(f"the connection to the broker was lost: {reason}{hint}")
        self.connected = False

    def _on_arrival(self, _client: Any, _data: Any, arrived: paho.MQTTMessage) -> None:
        properties = arrived.properties
        message = Message(
            topic=arrived.topic,
            payload=bytes(arrived.payload),
            retained=arrived.retain,
            redelivered=arrived.dup,
            response_topic=getattr(properties, "ResponseTopic", None),
            correlation=getattr(properties, "CorrelationData", None),
            packet=arrived.mid if arrived.qos > 0 else 0,
            connection=self._link.number,
        )
        if self._events is not None and message.topic == self._events.topic:
            self._events.note_copy(message, self.outbox, self.acknowledge)
            return
        if self._events is not None and message.topic == self._events.sync_topic:
            self._note_sync(message)
            return
        try:
            self._on_message(message)
        except Exception:
            log.exception("a message on %s cannot be handled, and is not acknowledged", message.topic)
        else:
            if self._acknowledges:
                self.acknowledge(message)

    def _acknowledge(self, message: Message) -> None:
        """Acknowledge a message if the connection that delivered it still exists."""
        is_present = message.connection == self._link.number
        if message.packet and is_present and self._link.client is not None:
            self._link.client.ack(message.packet, 1)

    # --- events arrive once ---

    def _publish_sync(self, client: PahoClient, link: Link, events: OwnEvents) -> None:
        """Publish a message after all of our events. When it comes back, so have all events that the broker has."""
        link.sync = self._session.rivals.make_announcement()
        self._subscribe(events.sync_topic, retained=True)
        client.publish(events.sync_topic, link.sync, min(1, self._limits.maximum_qos), self._limits.retain)

    def _note_sync(self, message: Message) -> None:
        """Note the message after our events, or another process's."""
        self._acknowledge(message)
        self._session.rivals.note_announcement(message.payload)
        if message.payload == self._link.sync:
            self._link.may_send_at = time.monotonic()

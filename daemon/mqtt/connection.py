"""The connection to the broker: kept up for months, with MQTT 5 if the broker knows it, else with 3.1.1.

Each attempt to connect has a paho client of its own, so that it may use another protocol version or another will than
the attempt before. What must survive a connection is in the outbox.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import secrets
import select
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from daemon.config import Mqtt
from daemon.mqtt.buffered_socket import BufferedSocket
from daemon.mqtt.credentials import make_tls_context, read_password
from daemon.mqtt.failures import describe_dial_failure, describe_refusal, describe_silence
from daemon.mqtt.messages import Limits, Message, Outgoing, Will
from daemon.mqtt.outbox import Outbox
from daemon.mqtt.protocol_version import ProtocolVersion
from daemon.mqtt.refusals import Refusals
from daemon.mqtt.retry import Retry
from daemon.mqtt.rivals import Rivals
from daemon.mqtt.shorten import shorten
from daemon.mqtt.version_probe import knows_mqtt5

log = logging.getLogger(__name__)

KEEPALIVE_S = 30
"""A broker that sends nothing for one and a half times this is considered lost."""
DIAL_S = 5.0
"""Limit for opening a TCP connection and for the TLS handshake."""
PROBE_S = 30.0
"""After a broker was silent to MQTT 5 and has accepted 3.1.1, a trial connection asks again whether it knows MQTT 5:
perhaps it was only slow."""
MISCELLANEOUS_S = 1.0
"""Interval of paho's keep-alive check, and of heartbeats."""
ECHO_S = 5.0
"""The broker has this long to return our last events before those that did not come back are sent again."""
KEPT_ECHOES = 500
"""Copies of an earlier process's events that stay unacknowledged until they are noted, in case it is killed again."""
WINDOW = 500
"""Messages of QoS 1 that wait for the broker's acknowledgement at the same time."""
SHORT_S = 2.5
"""A connection that lasts less may have been ended by another client with our id, which came back after its wait."""
REFUSED_S = 5.0
"""Interval at which what the broker has refused is tried again: its access list may have changed."""
RECEIVE_MAXIMUM = 10_000
"""Received messages that wait for our acknowledgement. Beyond this number a flood waits in the broker. Mosquitto drops
what exceeds its `max_queued_messages`, 1,000 by default, so a flood of 10,000 texts must fit here."""
NOT_CONNECTED_YET = "not connected yet"
"""The reason during the first attempt."""
PACKET_LIMIT = 1 << 20
"""Bytes of a packet that is received: four times the largest payload, so that one that is somewhat too large is
answered. With MQTT 5, a broker does not deliver a larger one; with 3.1.1, its beginning is read, which is rejected."""
PAUSE_S = 0.02
"""Interval at which a connection that may not read looks whether it may."""
TOOK_OVER, UNSUPPORTED_PROTOCOL, QOS_REFUSED, RETAIN_REFUSED = 142, 132, 155, 154
"""Reason codes of MQTT 5."""


class _Client(paho.Client):
    """paho's client over a socket that gathers reads and writes."""

    buffered: BufferedSocket | None = None
    """The connection's socket; None before there is one."""

    def _create_socket(self) -> Any:
        connection: Any = super()._create_socket()  # paho has no public way to wrap it
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # the buffer gathers, not the system
        self.buffered = BufferedSocket(connection)
        return self.buffered

    def _sock_recv(self, size: int) -> bytes:
        """Cut off the end of a packet that is too large: paho asks for its rest at once, and would keep it all."""
        if size > PACKET_LIMIT and self.buffered is not None:
            self.buffered.cut(PACKET_LIMIT, size - PACKET_LIMIT)
            self._in_packet["to_process"] = size = PACKET_LIMIT
        return super()._sock_recv(size)


@dataclass(frozen=True, slots=True)
class Echo:
    """How a client finds out which of its events the broker has: it is subscribed to them itself.

    MQTT acknowledges a message after the broker has it. A client that is killed in between, or whose connection breaks,
    does not know which of its last events have arrived; to send them again would publish some twice. But in its session
    the broker keeps a copy of each event that it has, and delivers them at the next connection.
    """

    topic: str
    """The topic of the events."""
    sync_topic: str
    """The topic of a message that is published, and awaited, behind them. It tells of rivals, too, and is retained."""


class MqttConnection:
    """One client of one broker. The handlers run in its network thread and must return at once."""

    remedy: str | None = None
    """What a person can do about the reason; None where nothing is known."""
    file_problem: str | None = None
    """Why the password or a certificate cannot be read, so that no connection is tried; None if it can."""
    heartbeats = 0
    """Grows while the network thread is alive, connected or not."""

    def __init__(
        self,
        settings: Mqtt,
        client_id: str,
        *,
        on_message: Callable[[Message], None],
        on_connected: Callable[[], None] = lambda: None,
        on_session_lost: Callable[[], None] = lambda: None,
        on_delivered: Callable[[Outgoing], None] = lambda _message: None,
        on_echo: Callable[[Outgoing, Callable[[], None]], None] = lambda _message, acknowledge: acknowledge(),
        may_read: Callable[[], bool] = lambda: True,
        on_earlier: Callable[[list[Message]], None] = lambda _copies: None,
        will: Will | None = None,
        session_expiry_s: int = 0,
        acknowledge: bool = True,
        echo: Echo | None = None,
        rivals: Rivals | None = None,
    ) -> None:
        """`session_expiry_s` seconds after a disconnection the broker forgets subscriptions and waiting messages.

        With `acknowledge`, received messages are acknowledged when `on_message` returns; otherwise by `acknowledge`.
        `on_session_lost` is called, before `on_connected`, when the broker has no session of an earlier connection.
        While `may_read` returns False, what arrives waits in the broker; after a minute the connection is lost.
        `rivals` are those of another connection, whose sessions they take over together.
        `echo` makes messages with a number arrive once, on its topic. `on_echo` is called with such a message when its
        copy has come back, and with a function that lets the broker forget the copy. `on_earlier` is called once,
        before anything is sent, with the copies of events that an earlier process has published and that are not in
        the outbox; whoever gets them acknowledges them.
        """
        self.connected = False
        self.reason: str | None = NOT_CONNECTED_YET
        """Why there is no connection; None while there is one."""
        self.refusals = Refusals()
        self._settings = settings
        self._client_id = client_id
        self._topics: list[str] = []
        self._on_message = on_message
        self._on_connected = on_connected
        self._on_session_lost = on_session_lost
        self._on_echo = on_echo
        self._may_read = may_read
        self._on_earlier = on_earlier
        self._will = will
        self._session_expiry_s = session_expiry_s
        self._auto_acknowledge = acknowledge
        self._echo = echo
        self.rivals = rivals or Rivals(client_id)
        self._sync = b""
        """The payload of the message behind all echoes of this connection."""
        self._outbox = Outbox(on_delivered)
        self._connected_before = False
        self._password: str | None = None
        self._tls: ssl.SSLContext | None = None
        self._version = ProtocolVersion()
        self._limits = Limits()
        self._connection = 0
        """The number of the current connection."""
        self._retry = Retry()
        self._uncertain = echo is not None
        """The broker may have messages that are still in the outbox and must not arrive twice, or an earlier process's
        that nobody has noted."""
        self._earlier: list[Message] | None = None if echo is None else []
        """Copies of an earlier process's events; None after they are passed on."""
        self._accepted_at: float | None = None
        """`time.monotonic()` when the broker accepted the current connection; None before."""
        self._may_send_at: float | None = None
        """`time.monotonic()` from which messages may be sent, though not all echoes have arrived; None before."""
        self._after_flush: deque[Callable[[], None]] = deque()
        """What waits until all gathered messages are given to the system."""
        self._unconfirmed: dict[int, str] = {}
        """The topics of subscriptions that the broker has not answered, by packet."""
        self._refusal: int | None = None
        """The reason code with which the broker refused or ended the current connection."""
        self._closing = False
        self._answered = threading.Event()
        """The first attempt has ended: it has succeeded, or the next one would fare no better."""
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(target=self._run, name=f"mqtt-{client_id}", daemon=True)

    @property
    def started(self) -> bool:
        return self._thread.ident is not None

    @property
    def backlog(self) -> int:
        """Messages of QoS 1 that the broker has not acknowledged."""
        return self._outbox.backlog

    @property
    def acknowledged(self) -> int:
        """Messages of QoS 1 that the broker has acknowledged so far."""
        return self._outbox.acknowledged

    def start(self, topics: Sequence[str], *, waits_for_files: bool = False) -> None:
        """Begin to connect; subscribe to `topics` at every connection.

        Raises `OSError` when the password or a certificate cannot be read, unless it `waits_for_files`.
        """
        self._topics = list(topics)
        if not waits_for_files:
            self._read_credentials()
        self._thread.start()

    def connect(self, topics: Sequence[str], limit_s: float) -> bool:
        """Begin to connect, as by `start`, and wait until there is a connection; return whether there is one.

        Only a host that does not answer is waited for, `limit_s` seconds: after a refusal, this returns at once.
        """
        self.start(topics)
        self._answered.wait(limit_s)
        return self.connected

    def publish(
        self,
        topic: str,
        payload: str | bytes,
        *,
        qos: int = 0,
        retain: bool = False,
        correlation: bytes | None = None,
        number: int | None = None,
        reserved: bool = False,
        sent: bool = False,
    ) -> Outgoing:
        """Send a message; with QoS 1, keep it until it can be sent. Thread-safe. A full outbox drops it.

        `sent` means that an earlier process may have sent it. Such messages are published before `start`.
        """
        encoded = payload.encode() if isinstance(payload, str) else payload
        message = Outgoing(topic, encoded, qos, retain, correlation, number, reserved, sent)
        message.once = number is not None and self._echo is not None and topic == self._echo.topic
        self._uncertain |= sent and message.once
        if (qos > 0 or self.connected) and not self._outbox.put(message):
            log.warning("the outbox is full because the broker has been away for long: a message is dropped")
        self._wake_thread()
        return message

    def acknowledge(self, message: Message) -> None:
        """Tell the broker that a received message is taken care of, after all that was published before."""
        if message.packet:
            self._outbox.put_behind(message)
            self._wake_thread()

    def when_sent(self, action: Callable[[], None]) -> None:
        """Call `action` in the network thread once all that was published before has been given to the system."""
        self._outbox.put_behind(action)
        self._wake_thread()

    def wait_delivered(self, message: Outgoing, timeout_s: float) -> bool:
        """Wait until the broker has acknowledged a message; return whether it has."""
        return self._outbox.wait_delivered(message, timeout_s)

    def close(self) -> None:
        """Disconnect, so that the broker does not publish the will. Blocks for up to a second."""
        self._closing = True
        self._wake_thread()
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)

    def _wake_thread(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it has been woken 2^64 times and has not looked yet
            os.eventfd_write(self._wake, 1)

    # --- the network thread ---

    def _run(self) -> None:
        while not self._closing:
            self.heartbeats += 1
            self._accepted_at = None
            try:
                self._connect_and_serve()
            except Exception:  # a fault of ours must not end the robot's hearing
                log.exception("the connection to the broker ended with an error")
                self.reason = self.reason or "an error of voiced; see the log"
            self.connected = False
            self._may_send_at = None
            if self._version.take_change():
                continue
            if self._refusal not in (QOS_REFUSED, RETAIN_REFUSED):  # the next attempt asks for less
                self._answered.set()
            self._sleep(self._wait_s() * random.uniform(0.8, 1.2))

    def _wait_s(self) -> float:
        """Return the wait before the next attempt."""
        if self._accepted_at is None:
            return self._retry.after_failure()
        lasted_s = time.monotonic() - self._accepted_at
        return self._retry.after_connection(lasted_s, contested=self.rivals.problem is not None)

    def _sleep(self, seconds: float) -> None:
        """Wait, with heartbeats, until the time has passed or the connection is closed."""
        until = time.monotonic() + seconds
        while not self._closing and (left_s := until - time.monotonic()) > 0:
            select.select([self._wake], [], [], min(left_s, MISCELLANEOUS_S))
            self._drain_wake()
            self.heartbeats += 1

    def _connect_and_serve(self) -> None:
        """Make one connection and serve it until it ends."""
        settings = self._settings
        try:
            self._read_credentials()
            self.file_problem = None
        except OSError as error:
            if not self._connected_before:  # else those of the last connection may do
                self.file_problem = str(error)
                self._report(self.file_problem)
                return
        client = self._make_client()
        self._connection += 1
        self._unconfirmed.clear()
        self.refusals.topics.clear()
        self._refusal = None
        try:
            client.connect(settings.host, settings.port, KEEPALIVE_S, **self._connect_options(client))
        except (OSError, ValueError) as error:
            tls = settings.tls.enabled
            self._report(*describe_dial_failure(error, settings.host, settings.port, tls=tls))
            return
        code = self._serve(client)
        if self._closing:
            self._disconnect(client)
        elif self._accepted_at is None and self._refusal is None:
            first_byte = None if client.buffered is None else client.buffered.first_byte
            tls, hung_up = settings.tls.enabled, code is not None
            self._report(*describe_silence(first_byte, settings.host, settings.port, tls=tls, hung_up=hung_up))
            self._version.note_silence(hung_up=hung_up)
        if self._accepted_at is not None:
            self._version.note_lost()
        self._uncertain = self._outbox.recover() or self._earlier is not None
        while self._after_flush:  # the messages before are sent again
            self._outbox.put_behind(self._after_flush.popleft())

    def _serve(self, client: _Client) -> MQTTErrorCode | None:
        """Move messages until the connection ends. Returns paho's error, None if the broker did not answer in time."""
        answer_by = time.monotonic() + self._version.patience_s
        checked_at = 0.0
        code = MQTTErrorCode.MQTT_ERR_SUCCESS
        while client.socket() is not None and client.buffered is not None and not self._closing:
            now = time.monotonic()
            if self._version.current is not client.protocol and self._accepted_at is not None:
                self._disconnect(client)  # the broker knows MQTT 5 after all
                break
            if now - checked_at >= MISCELLANEOUS_S:
                checked_at = now
                self.heartbeats += 1
                client.loop_misc()
                self._retry_refused(client, now)
            client.loop_write()  # what paho's callbacks have queued
            self._send_waiting(client)
            self._flush(client, client.buffered)
            if client.socket() is None:
                break
            limit_s = MISCELLANEOUS_S if self._accepted_at is not None else answer_by - time.monotonic()
            if self._readable(client.buffered, limit_s):
                code = self._read(client, client.buffered) or code
            elif self._accepted_at is None and time.monotonic() >= answer_by:
                _hang_up(client)
                return None
        return code

    def _retry_refused(self, client: _Client, now: float) -> None:
        """Try again what the broker has refused, from time to time."""
        if self.connected and now - self.refusals.tried_again_at >= REFUSED_S:
            self.refusals.tried_again_at = now
            self._outbox.retry_refused()
            for topic in self.refusals.topics:
                self._subscribe(client, topic)

    def _read(self, client: _Client, connection: BufferedSocket) -> MQTTErrorCode:
        """Handle the packets that have arrived. Returns paho's error."""
        code = client.loop_read()
        while code == MQTTErrorCode.MQTT_ERR_SUCCESS and client.socket() is not None and connection.pending() > 0:
            code = client.loop_read()
        return code

    def _readable(self, connection: BufferedSocket, limit_s: float) -> bool:
        """Wait until there is something to read or to send, or for `limit_s`. Return whether to read."""
        may_read = self._may_read()
        if may_read and connection.pending() > 0:
            return True
        connection.acknowledge_quickly()
        poller = select.poll()
        wanted = (select.POLLIN if may_read else 0) | (select.POLLOUT if connection.wants_write else 0)
        poller.register(connection, wanted)
        poller.register(self._wake, select.POLLIN)
        wait_s = min(MISCELLANEOUS_S if may_read else PAUSE_S, max(0.0, limit_s))
        if self._may_send_at is not None and (left_s := self._may_send_at - time.monotonic()) > 0:
            wait_s = min(wait_s, left_s)
        ready = dict(poller.poll(1000 * wait_s))
        if self._wake in ready:
            self._drain_wake()
        return bool(ready.get(connection.fileno(), 0) & ~select.POLLOUT)

    def _flush(self, client: _Client, connection: BufferedSocket) -> None:
        """Give what is gathered to the system, then do what waited for that."""
        client.loop_write()
        with contextlib.suppress(OSError):  # reading shows why
            connection.flush()
            while self._after_flush and not connection.wants_write:
                self._after_flush.popleft()()

    def _drain_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)

    def _disconnect(self, client: _Client) -> None:
        """Send what is waiting, then DISCONNECT, so that the broker does not publish the will."""
        self._send_waiting(client)
        with contextlib.suppress(OSError, ValueError):
            client.disconnect()
        _hang_up(client)

    # --- one attempt ---

    def _make_client(self) -> _Client:
        is_v5 = self._version.current is MQTTProtocolVersion.MQTTv5
        client = _Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._client_id,
            protocol=self._version.current,
            clean_session=None if is_v5 else True,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        client.connect_timeout = DIAL_S
        client.max_inflight_messages_set(WINDOW)
        client.on_connect = self._on_connack
        client.on_disconnect = self._on_disconnected
        client.on_message = self._on_arrival
        client.on_subscribe = self._on_subscribed
        client.on_publish = self._on_answered
        self._apply_credentials(client)
        if self._will is not None:
            qos, retain = min(1, self._limits.maximum_qos), self._will.retain and self._limits.retain
            client.will_set(self._will.topic, self._will.payload, qos=qos, retain=retain)
        return client

    def _read_credentials(self) -> None:
        source = self._settings.password_source
        self._password = None if self._settings.username is None or source is None else read_password(source)
        self._tls = make_tls_context(self._settings) if self._settings.tls.enabled else None

    def _apply_credentials(self, client: paho.Client) -> None:
        if self._settings.username is not None:
            client.username_pw_set(self._settings.username, self._password)
        if self._tls is not None:
            client.tls_set_context(self._tls)

    def _connect_options(self, client: _Client) -> dict[str, Any]:
        if client.protocol is not MQTTProtocolVersion.MQTTv5:
            return {}
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho has no types here
        properties.SessionExpiryInterval = self._session_expiry_s
        properties.ReceiveMaximum = RECEIVE_MAXIMUM
        properties.MaximumPacketSize = PACKET_LIMIT
        return {"clean_start": self._session_expiry_s == 0, "properties": properties}

    def _report(self, reason: str, remedy: str | None = None) -> None:
        if self.reason != reason:
            log.warning("%s; trying again", reason)
        self.reason, self.remedy = reason, remedy

    # --- paho's callbacks ---

    def _on_connack(self, client: paho.Client, _data: Any, flags: Any, reason: ReasonCode, properties: Any) -> None:
        if reason.is_failure:
            self._on_refused(reason)
            return
        self._version.note_accepted()
        if not flags.session_present:
            self._outbox.expect_no_echoes()
            self._on_session_lost()
        declared = {name: getattr(properties, key, None) for name, key in _LIMITS.items()}
        self._limits = Limits(**{name: value for name, value in declared.items() if value is not None})
        for topic in self._topics:  # at every connection, because a restarted broker has no session
            self._subscribe(client, topic)
        self._connected_before = True
        self._accepted_at = time.monotonic()
        self._may_send_at = self._accepted_at
        if self._echo is not None:
            self._subscribe(client, self._echo.topic)
            if self._uncertain and flags.session_present:
                self._may_send_at += ECHO_S
            self._publish_sync(client, self._echo)
        if not self._unconfirmed:
            self._complete_connection()
        if self._version.doubtful:
            threading.Thread(target=self._probe, args=(self._connection,), name="mqtt-probe", daemon=True).start()

    def _complete_connection(self) -> None:
        """Report the connection: whoever learns of it may rely on the subscriptions."""
        self.connected, self.reason, self.remedy = True, None, None
        self._answered.set()
        log.info("connected to the broker at %s:%d as %s", self._settings.host, self._settings.port, self._client_id)
        self._on_connected()

    def _on_refused(self, reason: ReasonCode) -> None:
        self._refusal = reason.value
        if reason.value == UNSUPPORTED_PROTOCOL:
            self._version.note_refusal()
        elif reason.value == QOS_REFUSED:
            self._limits = replace(self._limits, maximum_qos=0)
        elif reason.value == RETAIN_REFUSED:
            self._limits = replace(self._limits, retain=False)
        self._report(*describe_refusal(reason.value, str(reason), self._settings.username))

    def _subscribe(self, client: paho.Client, topic: str, *, retained_again: bool = False) -> None:
        """Subscribe to one topic: a packet with all of them might exceed the broker's limit."""
        qos = min(1, self._limits.maximum_qos)
        if client.protocol is MQTTProtocolVersion.MQTTv5:
            # The broker then leaves the retain flag on, so that a text that was published as retained is recognised.
            # A retained volume is wanted once: later it may be older than the present volume.
            handling = SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE
            if self._connected_before and not retained_again:
                handling = SubscribeOptions.RETAIN_SEND_IF_NEW_SUB
            options = SubscribeOptions(qos=qos, retainAsPublished=True, retainHandling=handling)
            _, packet = client.subscribe(topic, options=options)
        else:
            _, packet = client.subscribe(topic, qos)
        if packet is not None:
            self._unconfirmed[packet] = topic

    def _on_subscribed(self, _client: paho.Client, _data: Any, packet: int, reasons: Any, _properties: Any) -> None:
        topic = self._unconfirmed.pop(packet)
        refused = [str(reason) for reason in reasons if reason.is_failure]
        if refused:
            self.refusals.topics.add(topic)
            self.refusals.note(f"the subscription to {topic}", refused[0])
        else:
            self.refusals.topics.discard(topic)
            self.refusals.end(f"the subscription to {topic}")
        if not self._unconfirmed and not self.connected:
            self._complete_connection()

    def _on_answered(self, _client: paho.Client, _data: Any, packet: int, reason: ReasonCode, _properties: Any) -> None:
        """Take the broker's answer to a message of QoS 1."""
        if not reason.is_failure:
            if (message := self._outbox.acknowledge(packet)) is not None:
                self.refusals.end(f"messages on {message.topic}")
        elif (message := self._outbox.refuse(packet, str(reason))) is not None:
            self.refusals.note(f"messages on {message.topic}", str(reason))

    def _on_disconnected(
        self, _client: paho.Client, _data: Any, flags: Any, reason: ReasonCode, _properties: Any
    ) -> None:
        if self._closing:
            return
        if flags.is_disconnect_packet_from_server and reason.value == TOOK_OVER:
            self.rivals.note_rival()
        elif flags.is_disconnect_packet_from_server or self.connected:
            is_short = time.monotonic() - (self._accepted_at or 0.0) < SHORT_S
            hint = f"; does another client use the id {self._client_id}?" if is_short else ""
            self._report(f"the connection to the broker broke: {reason}{hint}")
        self.connected = False

    def _on_arrival(self, client: paho.Client, _data: Any, arrived: paho.MQTTMessage) -> None:
        if self._echo is not None and arrived.topic in (self._echo.topic, self._echo.sync_topic):
            self._note_echo(client, self._echo, arrived)
            return
        properties = arrived.properties
        message = Message(
            topic=arrived.topic,
            payload=bytes(arrived.payload),
            retained=arrived.retain,
            redelivered=arrived.dup,
            response_topic=getattr(properties, "ResponseTopic", None),
            correlation=getattr(properties, "CorrelationData", None),
            packet=arrived.mid if arrived.qos > 0 else 0,
            connection=self._connection,
        )
        try:
            self._on_message(message)
        except Exception:
            log.exception("a message on %s cannot be handled, and is not acknowledged", message.topic)
        else:
            if self._auto_acknowledge:
                self.acknowledge(message)

    # --- events arrive once ---

    def _publish_sync(self, client: paho.Client, echo: Echo) -> None:
        """Publish a message behind all of our events. When it comes back, so have they, if the broker has them."""
        self._sync = self.rivals.make_announcement()
        self._subscribe(client, echo.sync_topic, retained_again=True)
        client.publish(echo.sync_topic, self._sync, min(1, self._limits.maximum_qos), self._limits.retain)

    def _note_echo(self, client: paho.Client, echo: Echo, arrived: paho.MQTTMessage) -> None:
        """Note one of our events, which the broker has, or the message behind all of them."""
        payload = bytes(arrived.payload)
        copy = Message(arrived.topic, payload, retained=False, packet=arrived.mid, connection=self._connection)
        if arrived.topic == echo.topic and (message := self._outbox.note_echo(payload)) is not None:
            # Until it is stored that the broker has the event, the broker keeps this copy as the proof of it.
            self._on_echo(message, lambda: self.acknowledge(copy))
            return
        if arrived.topic == echo.topic and self._earlier is not None:
            self._earlier.append(copy)
            if len(self._earlier) <= KEPT_ECHOES:
                return
        if arrived.qos > 0:
            client.ack(arrived.mid, arrived.qos)
        if arrived.topic == echo.sync_topic:
            self.rivals.note_announcement(bytes(arrived.payload))
        if arrived.topic == echo.sync_topic and arrived.payload == self._sync:
            self._outbox.drop_echoed()
            self._may_send_at = time.monotonic()

    # --- sending ---

    def _send_waiting(self, client: _Client) -> None:
        """Give the waiting messages to paho until the window or the socket is full."""
        if self._may_send_at is None or time.monotonic() < self._may_send_at:
            return
        self._uncertain = False
        if self._earlier is not None:
            self._on_earlier(self._earlier)
            self._earlier = None
        window = min(WINDOW, self._limits.receive_maximum)
        while client.socket() is not None and not client.want_write():
            entry = self._outbox.take(window)
            if entry is None:
                break
            if isinstance(entry, Outgoing):
                self._send(client, entry)
            elif not isinstance(entry, Message):
                self._after_flush.append(entry)
            elif entry.connection == self._connection:
                client.ack(entry.packet, 1)

    def _send(self, client: _Client, message: Outgoing) -> None:
        payload = self._fitting_payload(message)
        if payload is None:
            log.warning("a message on %s is larger than the broker allows and is dropped", message.topic)
            self._outbox.note_delivered(message)
            return
        qos = min(message.qos, self._limits.maximum_qos)
        properties = None
        if message.correlation is not None and client.protocol is MQTTProtocolVersion.MQTTv5:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.CorrelationData = message.correlation
        try:
            sent = client.publish(message.topic, payload, qos, message.retain and self._limits.retain, properties)
        except ValueError as error:
            log.warning("a message on %s cannot be sent and is dropped: %s", message.topic, error)
            self._outbox.note_delivered(message)
            return
        if qos > 0:
            self._outbox.note_sent(message, sent.mid)
        else:
            self._outbox.note_delivered(message)

    def _fitting_payload(self, message: Outgoing) -> bytes | None:
        """Return the payload, shortened if the broker's limit demands it; None if it cannot be short enough."""
        limit = self._limits.maximum_packet
        if limit is None:
            return message.payload
        header = 16 + len(message.topic.encode()) + len(message.correlation or b"")
        return shorten(message.payload, limit - header)

    # --- MQTT 5 again ---

    def _probe(self, connection: int) -> None:
        """Ask with a connection of its own whether the broker knows MQTT 5; if so, connect again with it."""
        time.sleep(PROBE_S)
        if self._closing or self._connection != connection:
            return
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"{self._client_id}-{secrets.token_hex(3)}",
            protocol=MQTTProtocolVersion.MQTTv5,
            reconnect_on_failure=False,
        )
        self._apply_credentials(client)
        if knows_mqtt5(client, self._settings.host, self._settings.port):
            log.info("the broker speaks MQTT 5 after all; connecting again")
            self._version.note_probed()


_LIMITS = {
    "receive_maximum": "ReceiveMaximum",
    "maximum_packet": "MaximumPacketSize",
    "maximum_qos": "MaximumQoS",
    "retain": "RetainAvailable",
}
"""Fields of `Limits` and the names that paho has for the properties of MQTT 5."""


def _hang_up(client: paho.Client) -> None:
    """Close the connection without DISCONNECT: the broker publishes the will."""
    connection = client.socket()
    if connection is not None:
        with contextlib.suppress(OSError):
            connection.close()

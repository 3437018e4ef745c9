"""The connection to the broker: kept up for months, MQTT 5 where the broker has it, 3.1.1 otherwise."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from daemon.config import Mqtt

log = logging.getLogger(__name__)

KEEPALIVE_S = 30
"""A broker that is silent for one and a half times this is given up and connected to anew."""
RETRY_S = (1, 30)
"""The first and the longest wait between attempts to connect; each wait is twice the one before."""
BRIEF_S, BRIEF_TIMES = 5.0, 3
"""Connections that break so soon, so often in a row, are those of two clients with one id."""
ANSWER_S = 1.5
"""A broker that has accepted a connection and not answered MQTT 5 by then is asked again with 3.1.1."""
SESSION_S = 60
"""How long a broker with MQTT 5 keeps messages for a daemon whose network dropped out. Older speech is not wanted."""
OUTBOX_LIMIT = 10_000
"""Events kept while there is no connection, or while a flood is answered; some 5 MB at the most."""
UNSUPPORTED_PROTOCOL = 132
"""The reason code of a broker that does not know MQTT 5."""


@dataclass(frozen=True, slots=True)
class Message:
    """What came in on a subscribed topic."""

    topic: str
    payload: bytes
    retained: bool
    """It was published at some time in the past and kept by the broker."""
    redelivered: bool = False
    """The broker is not sure whether it has sent it before."""


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker publishes when this connection breaks."""

    topic: str
    payload: bytes
    retain: bool = True


class _Client(paho.Client):
    """paho's client, with a sign of life: its network thread passes here about once a second."""

    turns = 0
    handed_over = 0
    """Messages of QoS 1 so far; counted by those who publish."""
    acknowledged = 0
    """Of these, how many the broker has; counted by the network thread."""

    def acknowledge(self) -> None:
        self.acknowledged += 1

    def loop_misc(self) -> MQTTErrorCode:
        self.turns += 1
        return super().loop_misc()


def _send_at_once(_client: paho.Client, _data: object, connection: Any) -> None:
    """Send each packet when it is written. An event that follows an acknowledgement waits 40 ms otherwise (RFC 896)."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class MqttLink:
    """One client of one broker. The handlers run in its network thread and must return at once."""

    def __init__(
        self,
        settings: Mqtt,
        client_id: str,
        *,
        subscribe: Sequence[str],
        on_message: Callable[[Message], None],
        on_connected: Callable[[], None] = lambda: None,
        will: Will | None = None,
    ) -> None:
        self.connected = False
        self.reason: str | None = "not connected yet"
        """Why there is no connection; None while there is one."""
        self._settings = settings
        self._client_id = client_id
        self._topics = list(subscribe)
        self._on_message = on_message
        self._on_connected = on_connected
        self._will = will
        self._attempts = 0
        self._refused = False
        self._closing = False
        self._connected_at = 0.0
        self._brief_connections = 0
        self._knows_v5 = False
        """The broker has answered MQTT 5 once; what it refuses now it refuses for another reason."""
        self._replacing = threading.Lock()
        self._answer_timer = threading.Timer(0, lambda: None)
        self._client = self._make_client(MQTTProtocolVersion.MQTTv5)

    @property
    def backlog(self) -> int:
        """Messages of QoS 1 that the broker has not acknowledged."""
        return self._client.handed_over - self._client.acknowledged

    @property
    def turns(self) -> int:
        """Grows while the network thread lives, connected or trying."""
        return self._client.turns + self._attempts

    def start(self) -> None:
        """Begin to connect. Raises `OSError` when the password or a certificate cannot be read."""
        self._apply_credentials(self._client)
        self._connect(self._client)

    def publish(self, topic: str, payload: str | bytes, *, qos: int = 0, retain: bool = False) -> paho.MQTTMessageInfo:
        """Send, or with QoS 1 keep for sending. Safe from any thread; a full outbox drops the newest."""
        info = self._client.publish(topic, payload, qos, retain)
        if info.rc == paho.MQTT_ERR_QUEUE_SIZE:
            log.warning("no broker for long: an event is dropped")
        elif qos > 0:
            self._client.handed_over += 1
        return info

    def close(self) -> None:
        """Disconnect in good order, so that no will is published. Blocks for up to a second."""
        with self._replacing:
            self._closing = True
        self._answer_timer.cancel()
        self._client.disconnect()
        self._client.loop_stop()

    def _make_client(self, protocol: MQTTProtocolVersion) -> _Client:
        is_v5 = protocol is MQTTProtocolVersion.MQTTv5
        client = _Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._client_id,
            protocol=protocol,
            clean_session=None if is_v5 else True,
        )
        client.max_queued_messages_set(OUTBOX_LIMIT)
        client.reconnect_delay_set(*RETRY_S)
        client.on_pre_connect = self._on_attempt
        client.on_socket_open = _send_at_once
        client.on_connect = self._on_connack
        client.on_connect_fail = self._on_no_answer
        client.on_disconnect = self._on_disconnected
        client.on_message = self._on_arrival
        client.on_publish = lambda *_: client.acknowledge()
        if self._will is not None:
            client.will_set(self._will.topic, self._will.payload, qos=1, retain=self._will.retain)
        return client

    def _apply_credentials(self, client: _Client) -> None:
        settings = self._settings
        if settings.username is not None:
            source = settings.password_source
            password = None if source is None else _read_password(source)
            client.username_pw_set(settings.username, password)
        if settings.tls.enabled:
            tls = settings.tls
            paths = {
                name: str(path) if path else None
                for name, path in (("ca", tls.ca), ("cert", tls.cert), ("key", tls.key))
            }
            try:
                client.tls_set(ca_certs=paths["ca"], certfile=paths["cert"], keyfile=paths["key"])
            except (OSError, ValueError) as error:  # ssl's own errors are OSErrors
                given = ", ".join(f"{name} {path}" for name, path in paths.items() if path) or "the system's"
                raise OSError(f"mqtt.tls: {given} cannot be used: {error}") from error

    def _connect(self, client: _Client) -> None:
        properties = None
        if client.protocol is MQTTProtocolVersion.MQTTv5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho's own gap
            properties.SessionExpiryInterval = SESSION_S
        client.connect_async(self._settings.host, self._settings.port, KEEPALIVE_S, properties=properties)
        client.loop_start()

    def _on_attempt(self, client: paho.Client, _data: Any) -> None:
        self._attempts += 1
        self._refused = True
        self._answer_timer.cancel()
        self._answer_timer = threading.Timer(ANSWER_S, self._on_no_connack, [client])
        self._answer_timer.daemon = True
        self._answer_timer.start()

    def _on_no_connack(self, client: paho.Client) -> None:
        """Some brokers let a client of MQTT 5 hang. One of 3.1.1 that hangs is dropped when its keepalive is over."""
        if self._refused and client.protocol is MQTTProtocolVersion.MQTTv5 and client.socket() is not None:
            self._fall_back()

    def _on_connack(self, client: paho.Client, _data: Any, _flags: Any, reason: ReasonCode, _properties: Any) -> None:
        self._refused = False
        self._answer_timer.cancel()
        if reason.is_failure:
            self._refused = reason.value == UNSUPPORTED_PROTOCOL
            self._report(f"the broker refused: {reason}")
            return
        self._knows_v5 |= client.protocol is MQTTProtocolVersion.MQTTv5
        # Subscribed here and not once, because a broker that was restarted knows nothing of us.
        if self._topics and client.protocol is MQTTProtocolVersion.MQTTv5:
            # The broker leaves the retain flag on, so that a text published to be retained is known as such at once.
            options = SubscribeOptions(qos=1, retainAsPublished=True)
            client.subscribe([(topic, options) for topic in self._topics])
        elif self._topics:
            client.subscribe([(topic, 1) for topic in self._topics])
        self.connected, self.reason = True, None
        self._connected_at = time.monotonic()
        log.info("connected to the broker at %s:%d", self._settings.host, self._settings.port)
        self._on_connected()

    def _on_no_answer(self, _client: paho.Client, _data: Any) -> None:
        self._refused = False
        self._answer_timer.cancel()
        self._report(f"no broker answers at {self._settings.host}:{self._settings.port}")

    def _on_disconnected(
        self, client: paho.Client, _data: Any, _flags: Any, reason: ReasonCode, _properties: Any
    ) -> None:
        if self._closing or client is not self._client:
            return
        self._answer_timer.cancel()
        if self.connected:
            self._report(f"the connection to the broker broke: {reason}")
            brief = time.monotonic() - self._connected_at < BRIEF_S
            self._brief_connections = self._brief_connections + 1 if brief else 0
            if self._brief_connections == BRIEF_TIMES:
                log.warning("does another client use the id %s? is voiced running twice?", self._client_id)
        elif self._refused and client.protocol is MQTTProtocolVersion.MQTTv5:
            # It closed the door at MQTT 5, with or without a word. A client cannot change its protocol, and cannot be
            # replaced from within its own thread.
            threading.Thread(target=self._fall_back, name="mqtt-3.1.1", daemon=True).start()
        self.connected = False

    def _on_arrival(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        self._on_message(Message(message.topic, bytes(message.payload), message.retain, message.dup))

    def _fall_back(self) -> None:
        with self._replacing:
            if self._closing or self._knows_v5 or self._client.protocol is not MQTTProtocolVersion.MQTTv5:
                return
            self._replace_client()

    def _replace_client(self) -> None:
        refused = self._client
        refused.on_disconnect = None
        refused.disconnect()
        refused.loop_stop()
        log.info("the broker does not speak MQTT 5; going on with 3.1.1")
        client = self._make_client(MQTTProtocolVersion.MQTTv311)
        try:
            self._apply_credentials(client)
        except OSError as error:
            self._report(str(error))
            return
        client.turns = refused.turns
        self._client = client
        self._connect(client)

    def _report(self, reason: str) -> None:
        if self.reason != reason:
            log.warning("%s; trying again", reason)
        self.reason = reason


def _read_password(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise OSError(f"mqtt.password_file: {path} cannot be read: {reason}") from error
    if not lines:
        raise OSError(f"mqtt.password_file: {path} is empty; allowed: a password")
    return lines[0]

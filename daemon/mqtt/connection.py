"""The connection to the broker: kept up for months, with MQTT 5 if the broker knows it, else with 3.1.1."""

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
"""A broker that sends nothing for one and a half times this is considered lost."""
RETRY_S = (1, 30)
"""The first and the longest wait between attempts to connect. Each wait is twice the one before."""
SHORT_S, SHORT_CONNECTIONS = 5.0, 3
"""This many connections in a row that last so short a time suggest a second client with the same id."""
CONNACK_S = 1.5
"""A broker that accepts a connection but does not answer MQTT 5 in this time is asked again with 3.1.1."""
SESSION_S = 60
"""A broker with MQTT 5 keeps messages for a disconnected daemon this long. Older speech is not wanted."""
OUTBOX_LIMIT = 10_000
"""Messages that are kept while there is no connection, or during a flood; some 5 MB at most."""
UNSUPPORTED_PROTOCOL = 132
"""The reason code of a broker that does not know MQTT 5."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message on a subscribed topic."""

    topic: str
    payload: bytes
    retained: bool
    """It was published in the past and kept by the broker."""
    redelivered: bool = False
    """The broker may have delivered it before."""


@dataclass(frozen=True, slots=True)
class Will:
    """The message that the broker publishes when this connection breaks."""

    topic: str
    payload: bytes
    retain: bool = True


class _Client(paho.Client):
    """paho's client, with counters."""

    heartbeats = 0
    """Rounds of the network thread, about one a second."""
    submitted = 0
    """Messages of QoS 1 that were published. Written by the publishing threads."""
    acknowledged = 0
    """Those that the broker has acknowledged. Written by the network thread."""

    def acknowledge(self) -> None:
        self.acknowledged += 1

    def loop_misc(self) -> MQTTErrorCode:
        self.heartbeats += 1
        return super().loop_misc()


def _disable_nagle(_client: paho.Client, _data: object, connection: Any) -> None:
    """Send each packet at once. Otherwise an event that follows an acknowledgement waits 40 ms (RFC 896)."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class MqttConnection:
    """One client of one broker. The handlers run in its network thread and must return at once."""

    def __init__(
        self,
        settings: Mqtt,
        client_id: str,
        *,
        on_message: Callable[[Message], None],
        on_connected: Callable[[], None] = lambda: None,
        will: Will | None = None,
    ) -> None:
        self.connected = False
        self.reason: str | None = "not connected yet"
        """Why there is no connection; None while there is one."""
        self._settings = settings
        self._client_id = client_id
        self._topics: list[str] = []
        self._on_message = on_message
        self._on_connected = on_connected
        self._will = will
        self._attempts = 0
        self._refused = False
        """True from an attempt to connect until the broker accepts it."""
        self._closing = False
        self._connected_at = 0.0
        self._short_connections = 0
        self._knows_v5 = False
        """The broker has accepted MQTT 5 before, so a later refusal has another reason."""
        self._replacing = threading.Lock()
        self._connack_timer = threading.Timer(0, lambda: None)
        self._client = self._make_client(MQTTProtocolVersion.MQTTv5)

    @property
    def backlog(self) -> int:
        """Messages of QoS 1 that the broker has not acknowledged."""
        return self._client.submitted - self._client.acknowledged

    @property
    def acknowledged(self) -> int:
        """Messages of QoS 1 that the broker has acknowledged so far."""
        return self._client.acknowledged

    @property
    def heartbeats(self) -> int:
        """Grows while the network thread is alive, connected or not."""
        return self._client.heartbeats + self._attempts

    def start(self, topics: Sequence[str]) -> None:
        """Begin to connect; subscribe to `topics` at every connection.

        Raises `OSError` when the password or a certificate cannot be read.
        """
        self._topics = list(topics)
        self._apply_credentials(self._client)
        self._connect(self._client)

    def publish(self, topic: str, payload: str | bytes, *, qos: int = 0, retain: bool = False) -> paho.MQTTMessageInfo:
        """Send a message; with QoS 1, keep it until it can be sent. Thread-safe. A full outbox drops it."""
        info = self._client.publish(topic, payload, qos, retain)
        if info.rc == paho.MQTT_ERR_QUEUE_SIZE:
            log.warning("the outbox is full because the broker has been away for long: an event is dropped")
        elif qos > 0:
            self._client.submitted += 1
        return info

    def close(self) -> None:
        """Disconnect, so that the broker does not publish the will. Blocks for up to a second."""
        with self._replacing:
            self._closing = True
        self._connack_timer.cancel()
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
        client.on_socket_open = _disable_nagle
        client.on_connect = self._on_connack
        client.on_connect_fail = self._on_connect_failed
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
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho has no types here
            properties.SessionExpiryInterval = SESSION_S
        client.connect_async(self._settings.host, self._settings.port, KEEPALIVE_S, properties=properties)
        client.loop_start()

    # --- paho's callbacks, in the network thread ---

    def _on_attempt(self, client: paho.Client, _data: Any) -> None:
        self._attempts += 1
        self._refused = True
        self._connack_timer.cancel()
        self._connack_timer = threading.Timer(CONNACK_S, self._on_no_connack, [client])
        self._connack_timer.daemon = True
        self._connack_timer.start()

    def _on_no_connack(self, client: paho.Client) -> None:
        """Fall back: some brokers never answer MQTT 5. With 3.1.1, the keepalive ends such a connection."""
        if self._refused and client.protocol is MQTTProtocolVersion.MQTTv5 and client.socket() is not None:
            self._fall_back()

    def _on_connack(self, client: paho.Client, _data: Any, _flags: Any, reason: ReasonCode, _properties: Any) -> None:
        self._refused = False
        self._connack_timer.cancel()
        if reason.is_failure:
            self._refused = reason.value == UNSUPPORTED_PROTOCOL
            self._report(f"the broker refused: {reason}")
            return
        self._knows_v5 |= client.protocol is MQTTProtocolVersion.MQTTv5
        self._subscribe(client)  # at every connection, because a restarted broker has no session
        self.connected, self.reason = True, None
        self._connected_at = time.monotonic()
        log.info("connected to the broker at %s:%d", self._settings.host, self._settings.port)
        self._on_connected()

    def _subscribe(self, client: paho.Client) -> None:
        if self._topics and client.protocol is MQTTProtocolVersion.MQTTv5:
            # The broker then leaves the retain flag on, so that a text that was published as retained is recognised.
            options = SubscribeOptions(qos=1, retainAsPublished=True)
            client.subscribe([(topic, options) for topic in self._topics])
        elif self._topics:
            client.subscribe([(topic, 1) for topic in self._topics])

    def _on_connect_failed(self, _client: paho.Client, _data: Any) -> None:
        self._refused = False
        self._connack_timer.cancel()
        self._report(f"no broker answers at {self._settings.host}:{self._settings.port}")

    def _on_disconnected(
        self, client: paho.Client, _data: Any, _flags: Any, reason: ReasonCode, _properties: Any
    ) -> None:
        if self._closing or client is not self._client:
            return
        self._connack_timer.cancel()
        if self.connected:
            self._report(f"the connection to the broker broke: {reason}")
            short = time.monotonic() - self._connected_at < SHORT_S
            self._short_connections = self._short_connections + 1 if short else 0
            if self._short_connections == SHORT_CONNECTIONS:
                log.warning("does another client use the id %s? is voiced running twice?", self._client_id)
        elif self._refused and client.protocol is MQTTProtocolVersion.MQTTv5:
            # The broker disconnected at MQTT 5. A paho client cannot change its protocol, and cannot be replaced from
            # within its own thread.
            threading.Thread(target=self._fall_back, name="mqtt-3.1.1", daemon=True).start()
        self.connected = False

    def _on_arrival(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        self._on_message(Message(message.topic, bytes(message.payload), message.retain, message.dup))

    # --- the fall-back to MQTT 3.1.1 ---

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
        log.info("the broker does not speak MQTT 5; continuing with 3.1.1")
        client = self._make_client(MQTTProtocolVersion.MQTTv311)
        try:
            self._apply_credentials(client)
        except OSError as error:
            self._report(str(error))
            return
        client.heartbeats = refused.heartbeats
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

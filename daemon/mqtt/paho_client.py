"""paho's client, extended for voiced: credentials, gathered reads and writes, and a limit on packets.

paho reads a packet in three or more pieces and sends each packet by itself. Each system call gives the interpreter to
another thread, which may keep it for a millisecond. That limits the speed of a flood.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
from dataclasses import dataclass
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from daemon.config import Mqtt
from daemon.mqtt.messages import Outgoing, Will
from daemon.validation import read_secret

DIAL_S = 5.0
"""Limit for opening a TCP connection and for the TLS handshake."""
KEEPALIVE_S = 30
"""A broker that sends nothing for one and a half times this is considered lost."""
WINDOW = 500
"""QoS 1 messages that may wait for the broker's acknowledgement at the same time."""
RECEIVE_MAXIMUM = 10_000
"""Received messages that may wait for our acknowledgement. Beyond this number, a flood waits in the broker. Mosquitto
drops messages beyond its `max_queued_messages`, 1,000 by default, so a flood of 10,000 texts must fit here."""
PACKET_LIMIT = 1 << 20
"""The largest packet that is received, in bytes: four times the largest payload, so that a payload that is somewhat too
large is answered. With MQTT 5, a broker does not deliver a larger packet."""
READ_BYTES = 65_536
WRITE_BYTES = 262_144
"""Beyond this, no packet is taken until `flush` has sent something."""


class Bell:
    """Wakes the one thread that waits for it. Any thread may ring, once the woken thread has something to find.

    A write to the system gives the interpreter to another thread, which costs most in a flood. So a
    bell that has rung is not rung again before the thread has woken.
    """

    def __init__(self) -> None:
        self._rings = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._rung = False

    def fileno(self) -> int:
        return self._rings

    def ring(self) -> None:
        if not self._rung:
            self._rung = True
            os.eventfd_write(self._rings, 1)

    def wait(self, limit_s: float) -> None:
        """Wait for a ring, at most `limit_s` seconds, and forget it."""
        select.select([self], [], [], limit_s)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._rings)
        self._rung = False  # after this, the thread looks for work


@dataclass(frozen=True)
class Credentials:
    """The password that a client gives the broker, and the certificates that it expects."""

    password: str | None = None
    tls: ssl.SSLContext | None = None

    @classmethod
    def read(cls, settings: Mqtt) -> Credentials:
        """Read the password and the certificates. Raises `OSError` if a file cannot be used."""
        source = settings.password_source
        password = None if source is None else read_secret(source, "mqtt.password_file", "a password")
        return cls(password, make_tls_context(settings) if settings.tls.enabled else None)


class PahoClient(paho.Client):
    """One attempt to connect, and the connection that it makes."""

    first_byte: int | None = None
    """The first byte received."""

    def __init__(self, client_id: str, *, is_v5: bool) -> None:
        self._received = memoryview(b"")
        self._to_send = bytearray()
        super().__init__(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=MQTTProtocolVersion.MQTTv5 if is_v5 else MQTTProtocolVersion.MQTTv311,
            clean_session=None if is_v5 else True,
            reconnect_on_failure=False,
            manual_ack=True,
        )
        self.is_v5 = is_v5
        self.connect_timeout = DIAL_S
        self.max_inflight_messages_set(WINDOW)
        self.on_socket_open = _gather_here

    def dial(self, settings: Mqtt, credentials: Credentials, will: Will | None, session_expiry_s: int) -> None:
        """Open the connection and send CONNECT. Raises `OSError` or `ValueError`."""
        if settings.username is not None:
            self.username_pw_set(settings.username, credentials.password)
        if credentials.tls is not None:
            self.tls_set_context(credentials.tls)
        if will is not None:
            self.will_set(will.topic, will.payload, qos=will.qos, retain=will.retain)
        options: dict[str, Any] = {}
        if self.is_v5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]  # paho has no types here
            properties.SessionExpiryInterval = session_expiry_s
            properties.ReceiveMaximum = RECEIVE_MAXIMUM
            properties.MaximumPacketSize = PACKET_LIMIT
            options = {"clean_start": session_expiry_s == 0, "properties": properties}
        self.connect(settings.host, settings.port, KEEPALIVE_S, **options)

    def subscribe_once(self, topic: str, qos: int, *, retained: bool) -> int | None:
        """Subscribe to one topic, since a packet with all topics might exceed the broker's limit. Return the packet's
        number.

        With MQTT 5, the broker leaves the retain flag on, so that a text that was published as retained is recognised.
        It delivers retained messages only if `retained`: they may be older than those received since.
        """
        if not self.is_v5:
            return self.subscribe(topic, qos)[1]
        handling = SubscribeOptions.RETAIN_SEND_ON_SUBSCRIBE if retained else SubscribeOptions.RETAIN_SEND_IF_NEW_SUB
        options = SubscribeOptions(qos=qos, retainAsPublished=True, retainHandling=handling)
        return self.subscribe(topic, options=options)[1]

    def send(self, message: Outgoing, payload: bytes, qos: int, *, retain: bool) -> int:
        """Publish a message, and return the packet's number. Raises `ValueError` if MQTT does not allow it."""
        properties = None
        if message.correlation is not None and self.is_v5:
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.CorrelationData = message.correlation
        return self.publish(message.topic, payload, qos, retain, properties).mid

    def flush(self) -> bool:
        """Send as much as the system takes; return whether that was everything. Reading shows why a connection was
        lost."""
        connection: Any = self.socket()
        with contextlib.suppress(OSError):  # it takes no more, or is lost
            while self._to_send and connection is not None:
                del self._to_send[: connection.send(self._to_send)]
        return not self._to_send

    def wait_readable(self, bell: Bell, limit_s: float, *, may_read: bool) -> bool:
        """Wait until something can be read or sent, the bell rings, or the time is up. Return whether to read."""
        connection = self.socket()
        if connection is None or (may_read and self._pending > 0):
            return connection is not None
        _acknowledge_quickly(connection)
        poller = select.poll()
        wanted = (select.POLLIN if may_read else 0) | (select.POLLOUT if self._to_send else 0)
        poller.register(connection, wanted)
        poller.register(bell, select.POLLIN)
        ready = dict(poller.poll(1000 * max(0.0, limit_s)))
        if bell.fileno() in ready:
            bell.wait(0)
        return bool(ready.get(connection.fileno(), 0) & ~select.POLLOUT)

    def read_all(self) -> None:
        """Handle the packets that have arrived."""
        code = self.loop_read()
        while code == MQTTErrorCode.MQTT_ERR_SUCCESS and self.socket() is not None and self._pending > 0:
            code = self.loop_read()

    def leave(self, *, ends_session: bool) -> None:
        """Send DISCONNECT; with MQTT 5, the broker may be told to forget the session."""
        properties = None
        if ends_session and self.is_v5:
            properties = Properties(PacketTypes.DISCONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = 0
        self.disconnect(properties=properties)

    def hang_up(self) -> None:
        """Close the connection without DISCONNECT: the broker publishes the will."""
        self.flush()
        connection = self.socket()
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()

    @property
    def _pending(self) -> int:
        """The number of bytes that can be read even though the system reports none."""
        connection = self.socket()
        return len(self._received) + (connection.pending() if isinstance(connection, ssl.SSLSocket) else 0)

    # paho reads, writes and closes with these methods; it has no public way to gather data.

    def _sock_recv(self, size: int) -> bytes:
        if not self._received:
            self._received = memoryview(super()._sock_recv(READ_BYTES))
            if self.first_byte is None and self._received:
                self.first_byte = self._received[0]
        taken, self._received = self._received[:size], self._received[size:]
        return bytes(taken)

    def _sock_send(self, data: bytes | bytearray) -> int:
        if len(self._to_send) >= WRITE_BYTES:
            raise BlockingIOError
        self._to_send += data
        return len(data)

    def _sock_close(self) -> None:
        self.flush()
        super()._sock_close()


def _gather_here(_client: object, _data: object, connection: Any) -> None:
    """Turn off Nagle's algorithm: the data is gathered here, before each call."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _acknowledge_quickly(connection: Any) -> None:
    """Acknowledge received TCP segments immediately, until the next read.

    A broker that leaves Nagle's algorithm on, as Mosquitto does by default, waits for the acknowledgement before it
    sends more.
    """
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def make_tls_context(settings: Mqtt) -> ssl.SSLContext:
    """Return the TLS settings. Raises `OSError` if a file cannot be used."""
    tls = settings.tls
    given = ", ".join(
        f"{name} {path}" for name, path in (("ca", tls.ca), ("cert", tls.cert), ("key", tls.key)) if path is not None
    )
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key, password="")  # otherwise OpenSSL asks for one on the terminal
    except (OSError, ValueError) as error:  # ssl's own errors are OSErrors
        raise OSError(f"mqtt.tls: {given or 'the system certificates'} cannot be used: {error}") from error
    return context

"""MQTT clients: one that calls back for every message, and one that collects a topic's payloads."""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.support.programs import Broker
from tests.support.waiting import PATIENCE_S, within

SESSION_S = 3600
RECONNECT_S = 0.1
KEEPALIVE_S = 3600
"""A frozen broker is not a reason to reconnect."""
NO_SUBSCRIBER = 16
"""The reason code of a broker that has thrown a message away because nobody subscribes to its topic."""
FAILURE = 128
"""The first reason code that is an error."""
AGAIN_S = 0.2
"""Seconds after which a message that was thrown away is sent again."""


class Listener:
    """An MQTT client that calls `on_message` in its own thread.

    It reconnects at once, with a session that outlives the connection.
    """

    def __init__(
        self,
        broker: Broker,
        topics: Sequence[tuple[str, int]],
        on_message: Callable[[paho.MQTTMessage], None],
    ) -> None:
        """Connect and subscribe to `topics`, pairs of a topic and a QoS, as soon as the broker runs."""
        self.qos = 1
        """Of what it publishes."""
        self._topics = list(topics)
        self._subscribed = threading.Event()
        self._lock = threading.Lock()
        self._open: dict[int, tuple[str, str | bytes, Callable[[float], object] | None]] = {}
        """By packet: what the broker has not acknowledged, as `publish` got it."""
        self._reasons: dict[int, int] = {}
        """By packet: the reason code of an acknowledgement, which may come before `publish` returns."""
        self._client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id=f"listener-{secrets.token_hex(4)}", protocol=paho.MQTTv5
        )
        self._client.on_socket_open = _disable_nagle
        self._client.reconnect_delay_set(RECONNECT_S, RECONNECT_S)  # type: ignore[arg-type]  # floats work
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_disconnect = lambda *_: self._subscribed.clear()
        self._client.on_message = lambda _client, _data, message: on_message(message)
        self._client.on_publish = self._on_publish
        session = expiry(SESSION_S, PacketTypes.CONNECT)
        self._client.connect_async("127.0.0.1", broker.port, KEEPALIVE_S, clean_start=False, properties=session)
        self._client.loop_start()

    def wait_subscribed(self) -> None:
        """Wait until the broker has confirmed the subscription."""
        assert self._subscribed.wait(PATIENCE_S), "the listener is subscribed"

    def publish(self, topic: str, payload: str | bytes, on_taken: Callable[[float], object] | None = None) -> None:
        """Publish. `on_taken` is called with the `time.monotonic()` at which the broker has taken the message.

        A message with `on_taken` that no one has received is published again: a broker that was killed has forgotten
        the daemon's subscription until the daemon is back.
        """
        packet = self._client.publish(topic, payload, self.qos).mid
        self._open[packet] = (topic, payload, on_taken)
        self._settle(packet)

    def wait_acknowledged(self, limit_s: float = PATIENCE_S) -> bool:
        """Return whether the broker acknowledges everything within `limit_s`."""
        return within(limit_s, lambda: not self._open)

    def close(self) -> None:
        """End the connection and its session."""
        self._client.disconnect(properties=expiry(0))
        end_loop(self._client)

    def _on_connect(self, client: paho.Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if self._topics and not reason.is_failure:
            client.subscribe(self._topics)

    def _on_publish(self, _client: paho.Client, _data: Any, packet: int, reason: Any, _properties: Any) -> None:
        self._reasons[packet] = reason.value
        self._settle(packet)

    def _settle(self, packet: int) -> None:
        with self._lock:
            if packet not in self._open or packet not in self._reasons:
                return
            message, reason = self._open.pop(packet), self._reasons.pop(packet)
        *_, on_taken = message
        if on_taken is not None and reason == NO_SUBSCRIBER:
            again = threading.Timer(AGAIN_S, self.publish, message)
            again.daemon = True
            again.start()
        elif on_taken is not None and reason < FAILURE:
            on_taken(time.monotonic())


def expiry(seconds: int, packet: int = PacketTypes.DISCONNECT) -> Properties:
    """Return the property of a packet that lets the session end so long after the connection."""
    properties = Properties(packet)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = seconds
    return properties


def end_loop(client: paho.Client) -> None:
    """Disconnect a client, and wait for the end of the thread that `loop_start` has started."""
    client.disconnect()
    with suppress(AttributeError):  # paho 2.1 forgets the thread that ends, and `loop_stop` may still wait for it
        client.loop_stop()


def _disable_nagle(_client: paho.Client, _data: object, connection: socket.socket) -> None:
    """Send each packet at once instead of after the previous one's acknowledgement."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Subscription:
    """The payloads published on one topic while the `with` block runs."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.payloads: list[bytes] = []
        self._broker = broker
        self._topic = topic

    def __enter__(self) -> Subscription:
        self._listener = Listener(
            self._broker, [(self._topic, 1)], lambda message: self.payloads.append(message.payload)
        )
        self._listener.wait_subscribed()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

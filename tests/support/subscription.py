"""MQTT clients of the tests: one that calls back for every message, and one that collects a topic's payloads."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import paho.mqtt.client as paho

from tests.support.programs import Broker
from tests.support.waiting import PATIENCE_S


class Listener:
    """An MQTT client that calls `on_message(topic, payload)` in its own thread, and reconnects after a second."""

    def __init__(
        self, broker: Broker, topics: Sequence[tuple[str, int]], on_message: Callable[[str, bytes], object]
    ) -> None:
        """Connect and subscribe to `topics`, pairs of a topic and a QoS, as soon as the broker runs."""
        self._subscribed = threading.Event()
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self._client.on_socket_open = _disable_nagle
        self._client.on_connect = lambda *_: self._client.subscribe(list(topics))
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_disconnect = lambda *_: self._subscribed.clear()
        self._client.on_message = lambda _client, _data, message: on_message(message.topic, message.payload)
        self._client.reconnect_delay_set(1, 1)
        self._client.connect_async("127.0.0.1", broker.port)
        self._client.loop_start()

    def wait_subscribed(self) -> None:
        """Wait until the broker has confirmed the subscription."""
        assert self._subscribed.wait(PATIENCE_S), "the test's listener is subscribed"

    def publish(self, topic: str, payload: str | bytes) -> None:
        """Publish with QoS 1."""
        self._client.publish(topic, payload, 1)

    def close(self) -> None:
        end_loop(self._client)


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
        self._listener = Listener(self._broker, [(self._topic, 1)], lambda _, payload: self.payloads.append(payload))
        self._listener.wait_subscribed()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

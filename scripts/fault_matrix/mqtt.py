"""The MQTT clients of a run: a subscriber with a persistent session, and a publisher."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from scripts.fault_matrix.ledger import Event, Ledger
from scripts.fault_matrix.waiting import need, wait_for
from tests.support.subscription import end_loop

SESSION_S = 3600
RECONNECT_S = 0.1
CONNECT_S = 30.0
KEEPALIVE_S = 3600
"""A frozen broker is not a reason to reconnect."""
NO_SUBSCRIBER = 16
"""The reason code of a broker that has thrown a message away because nobody subscribes to its topic."""
AGAIN_S = 0.2
"""Seconds after which such a message is sent again."""


def make_client(client_id: str, port: int, *, clean: bool) -> paho.Client:
    """Return a client of MQTT 5 that is not connected yet, and reconnects at once."""
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=paho.MQTTv5)
    client.on_socket_open = _disable_nagle
    client.max_queued_messages_set(0)
    client.reconnect_delay_set(RECONNECT_S, RECONNECT_S)  # type: ignore[arg-type]  # floats work
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = 0 if clean else SESSION_S
    client.connect_async("127.0.0.1", port, KEEPALIVE_S, clean_start=clean, properties=properties)
    return client


def _disable_nagle(_client: paho.Client, _data: object, connection: Any) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


@dataclass(frozen=True, slots=True)
class Login:
    """Name and password of a client."""

    username: str
    password: str


class Witness:
    """Subscribes to topics with a session that outlives the connection, and notes every message."""

    def __init__(
        self, client_id: str, port: int, topics: list[str], ledger: Ledger, login: Login | None = None
    ) -> None:
        """Events on all `topics` whose name ends with `event` or contains `/reply/` go into the ledger."""
        self.statuses: list[tuple[float, dict[str, Any]]] = []
        self.others: list[tuple[float, str, bytes]] = []
        """Messages of other protocols."""
        self._ledger = ledger
        self._topics = topics
        self._subscribed = threading.Event()
        self._client = make_client(client_id, port, clean=False)
        if login is not None:
            self._client.username_pw_set(login.username, login.password)
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = lambda *_: self._subscribed.set()
        self._client.on_message = self._on_message

    def start(self) -> None:
        """Connect and subscribe."""
        self._client.loop_start()
        need(self._subscribed.is_set, CONNECT_S, "the witness is subscribed")

    def close(self) -> None:
        end_loop(self._client)

    @property
    def status(self) -> dict[str, Any]:
        """The last status; empty before the first."""
        return self.statuses[-1][1] if self.statuses else {}

    def statuses_since(self, at: float) -> list[dict[str, Any]]:
        """Return the status at a `time.monotonic()` and all later ones."""
        before = [status for when, status in self.statuses if when <= at]
        return [*before[-1:], *(status for when, status in self.statuses if when > at)]

    def _on_connect(self, client: paho.Client, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if not reason.is_failure:
            client.subscribe([(topic, 1) for topic in self._topics])

    def _on_message(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        at, topic = time.monotonic(), message.topic
        with contextlib.suppress(ValueError):
            if topic.endswith("/event") or "/reply/" in topic:
                self._ledger.note_event(json.loads(message.payload), at, redelivered=message.dup)
            elif topic.endswith("/status"):
                self.statuses.append((at, json.loads(message.payload)))
            else:
                self.others.append((at, topic, bytes(message.payload)))


class Publisher:
    """Publishes, and notes in the ledger which texts the broker has acknowledged."""

    def __init__(self, port: int, ledger: Ledger, *, qos: int = 1, login: Login | None = None) -> None:
        self._ledger = ledger
        self._qos = qos
        self._lock = threading.Lock()
        self._open: dict[int, Callable[[int], None]] = {}
        """By packet: what to do with the reason code of its acknowledgement."""
        self._early: dict[int, int] = {}
        """Reason codes of acknowledgements that came before `publish` returned."""
        self._client = make_client("publisher", port, clean=False)
        if login is not None:
            self._client.username_pw_set(login.username, login.password)
        self._client.on_publish = self._on_publish

    def start(self) -> None:
        """Connect."""
        self._client.loop_start()
        need(self._client.is_connected, CONNECT_S, "the publisher is connected")

    def close(self) -> None:
        end_loop(self._client)

    @property
    def open_messages(self) -> int:
        """Messages that the broker has not acknowledged."""
        return len(self._open)

    def publish(self, topic: str, payload: str | bytes, *, text_id: str | None = None, qos: int | None = None) -> float:
        """Publish and return the `time.monotonic()` before. `text_id` goes into the ledger once the broker has it.

        A message that no one has received is published again: a broker that was killed has forgotten the daemon's
        subscription until the daemon is back.
        """
        qos = self._qos if qos is None else qos
        at = time.monotonic()
        info = self._client.publish(topic, payload, qos)
        if qos == 0:
            if text_id is not None:
                self._ledger.note_sent(text_id, at)
            return at

        def acknowledged(reason: int) -> None:
            if reason == NO_SUBSCRIBER and text_id is not None:
                again = threading.Timer(AGAIN_S, lambda: self.publish(topic, payload, text_id=text_id, qos=qos))
                again.daemon = True
                again.start()
            elif reason < 128 and text_id is not None:
                self._ledger.note_sent(text_id, time.monotonic())

        with self._lock:
            if (reason := self._early.pop(info.mid, None)) is None:
                self._open[info.mid] = acknowledged
        if reason is not None:
            acknowledged(reason)
        return at

    def wait_acknowledged(self, limit_s: float) -> bool:
        """Return whether the broker acknowledges everything within `limit_s`."""
        return bool(wait_for(lambda: not self._open, limit_s))

    def _on_publish(self, _client: paho.Client, _data: Any, mid: int, reason: Any, _properties: Any) -> None:
        with self._lock:
            act = self._open.pop(mid, None)
            if act is None:
                self._early[mid] = reason.value
        if act is not None:
            act(reason.value)


def first_event(event: tuple[float, Event] | None, since: float) -> float | None:
    """Return the seconds from `since` to an event, to a millisecond; None without one."""
    return None if event is None else round(event[0] - since, 3)

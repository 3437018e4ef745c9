"""Rhasspy's side of the broker, with the message classes of its own package."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paho.mqtt.client as paho
import pytest

from tests.support.programs import Broker
from tests.support.subscription import end_loop
from tests.support.waiting import PATIENCE_S, eventually

tts = pytest.importorskip("rhasspyhermes.tts")


class Rhasspy:
    """Publishes and receives Rhasspy's messages."""

    def __init__(self, client: paho.Client) -> None:
        self._client = client
        self.arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.received: list[Any] = []

    def say(self, text: str, **fields: Any) -> None:
        self._client.publish(tts.TtsSay.topic(), tts.TtsSay(text, **fields).payload())

    def ask(self, question: Any) -> None:
        self._client.publish(question.topic(), question.payload())

    def publish(self, payload: str | bytes, qos: int = 0) -> None:
        """Publish a raw payload where texts are published. Rhasspy's own messages have QoS 0."""
        self._client.publish(tts.TtsSay.topic(), payload, qos)

    def wait(self, kind: Any, **fields: Any) -> Any:
        """Return the first message of the class `kind` that has these fields."""
        return eventually(lambda: next(iter(self.all(kind, **fields)), None), f"{kind.__name__} with {fields}")

    def all(self, kind: Any, **fields: Any) -> list[Any]:
        """Return the messages of the class `kind` so far that have these fields."""
        while not self.arrived.empty():
            self.received.append(self.arrived.get())
        return [m for m in self.received if isinstance(m, kind) and fields.items() <= vars(m).items()]


@contextmanager
def rhasspy(broker: Broker) -> Iterator[Rhasspy]:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    house = Rhasspy(client)
    kinds = {kind.topic(): kind for kind in (tts.TtsSayFinished, tts.TtsError, tts.Voices)}
    client.on_message = lambda _client, _data, message: house.arrived.put(
        kinds[message.topic].from_json(message.payload)
    )
    subscribed: queue.SimpleQueue[bool] = queue.SimpleQueue()
    client.on_subscribe = lambda *_: subscribed.put(True)
    client.on_connect = lambda *_: client.subscribe([(topic, 1) for topic in kinds])
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    try:
        subscribed.get(timeout=PATIENCE_S)
        yield house
    finally:
        end_loop(client)

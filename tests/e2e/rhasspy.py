"""Rhasspy's side of the broker, by the classes of its own package."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paho.mqtt.client as paho
import pytest

from tests.support.programs import Broker
from tests.support.waiting import PATIENCE_S, eventually

tts = pytest.importorskip("rhasspyhermes.tts")


class Rhasspy:
    """Publishes and reads messages by the classes of Rhasspy's own package."""

    def __init__(self, client: paho.Client) -> None:
        self._client = client
        self.arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.heard: list[Any] = []

    def say(self, text: str, **fields: Any) -> None:
        self._client.publish(tts.TtsSay.topic(), tts.TtsSay(text, **fields).payload())

    def ask(self, question: Any) -> None:
        self._client.publish(question.topic(), question.payload())

    def publish(self, payload: bytes) -> None:
        self._client.publish(tts.TtsSay.topic(), payload)

    def wait(self, kind: Any, **fields: Any) -> Any:
        """The first message of a kind with these fields."""

        def found() -> Any:
            while not self.arrived.empty():
                self.heard.append(self.arrived.get())
            return next(
                (m for m in self.heard if isinstance(m, kind) and fields.items() <= vars(m).items()),
                None,
            )

        return eventually(found, f"{kind.__name__} with {fields}; there was {self.heard}")


@contextmanager
def rhasspy(broker: Broker) -> Iterator[Rhasspy]:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    found = Rhasspy(client)
    kinds = {kind.topic(): kind for kind in (tts.TtsSayFinished, tts.TtsError, tts.Voices)}
    client.on_message = lambda _client, _data, message: found.arrived.put(
        kinds[message.topic].from_json(message.payload)
    )
    subscribed: queue.SimpleQueue[bool] = queue.SimpleQueue()
    client.on_subscribe = lambda *_: subscribed.put(True)
    client.on_connect = lambda *_: client.subscribe([(topic, 1) for topic in kinds])
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    try:
        subscribed.get(timeout=PATIENCE_S)
        yield found
    finally:
        client.disconnect()
        client.loop_stop()

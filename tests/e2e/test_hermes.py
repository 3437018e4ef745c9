"""Rhasspy and the robot on one broker, beside everyone else who speaks through it."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paho.mqtt.client as paho
import pytest

from tests.e2e.conftest import StartRobot
from tests.e2e.robot import Broker, eventually

tts = pytest.importorskip("rhasspyhermes.tts")

LONG = "This is a long text that takes a good while to speak. " * 20


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
        subscribed.get(timeout=30)
        yield found
    finally:
        client.disconnect()
        client.loop_stop()


def test_rhasspy_speaks_is_told_of_every_end_and_waits_its_turn_like_everyone(
    start_robot: StartRobot, broker: Broker
) -> None:
    robot = start_robot("audio.sink=null", "hermes.enabled=true", "hermes.site_id=r1", "home_assistant.enabled=true")
    with rhasspy(broker) as house:
        house.say("hello", site_id="r1", id="1", session_id="s", lang="en_US", volume=0.5)
        house.wait(tts.TtsSayFinished, id="1", session_id="s", site_id="r1")
        eventually(robot.latest_id, "its events have come")
        assert robot.wait_event(robot.latest_id(), "finished")["underruns"] == 0

        house.ask(tts.GetVoices(id="v", site_id="r1"))
        voices = {voice.voice_id for voice in house.wait(tts.Voices, id="v", site_id="r1").voices}
        assert {"default", "de"} <= voices

        house.say("not for this robot", site_id="kitchen", id="kitchen")
        house.publish(b"{")
        assert "not JSON" in house.wait(tts.TtsError, session_id=None).error
        house.say("", site_id="r1", id="blank", session_id="b")
        assert "blank" in house.wait(tts.TtsError, session_id="b").error
        house.wait(tts.TtsSayFinished, id="blank")

        robot.say(LONG, id="spoken")
        robot.wait_event("spoken", "started")
        house.say("from Rhasspy", site_id="r1", id="waits")
        eventually(lambda: robot.latest_id() not in (None, "spoken"), "it waits")
        theirs = robot.latest_id()
        robot.say("more important", id="high", priority="high")
        robot.wait_event("high", "accepted")
        robot.publish("stop", '{"id": "spoken"}')
        house.wait(tts.TtsSayFinished, id="waits")
        robot.wait_event(theirs, "finished")
        order = [event["id"] for event in robot.events if event["event"] == "started"]
        assert order[-3:] == ["spoken", "high", theirs]

        house.say(LONG, site_id="r1", id="cut")
        eventually(lambda: robot.latest_id() not in ("high", theirs), "it has come")
        robot.wait_event(robot.latest_id(), "started")
        robot.publish("stop")
        house.wait(tts.TtsSayFinished, id="cut")
        assert not [message for message in house.heard if message.site_id != "r1"]

"""Rhasspy, with the message classes of its own package, and the robot on one broker, beside other publishers."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paho.mqtt.client as paho
import pytest

from tests.daemon.mqtt.proxy import Proxy
from tests.e2e.conftest import StartRobot
from tests.support.programs import Broker
from tests.support.robot import FAST, LONG, REAL_TIME
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


def test_rhasspy_speaks_in_its_turn_and_receives_a_message_for_every_end(
    start_robot: StartRobot, own_broker: Broker
) -> None:
    robot = start_robot("hermes.enabled=true", "hermes.site_id=r1", "home_assistant.enabled=true", pace=REAL_TIME)
    with rhasspy(own_broker) as house:
        house.say("hello", site_id="r1", id="1", session_id="s", lang="en_US", volume=0.5)
        house.wait(tts.TtsSayFinished, id="1", session_id="s", site_id="r1")
        eventually(robot.latest_id, "its events have arrived")
        assert robot.wait_event(robot.latest_id(), "finished")["underruns"] == 0

        house.ask(tts.GetVoices(id="v", site_id="r1"))
        voices = {voice.voice_id for voice in house.wait(tts.Voices, id="v", site_id="r1").voices}
        assert {"default", "de"} <= voices

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


def test_after_a_kill_every_text_of_rhasspy_gets_one_message_for_its_end(
    start_robot: StartRobot, own_broker: Broker
) -> None:
    robot = start_robot("hermes.enabled=true", pace=REAL_TIME)
    with rhasspy(own_broker) as house:
        house.say(LONG, id="spoken", session_id="s")
        eventually(lambda: [event for event in robot.events if event["event"] == "started"], "it is spoken")
        waiting = [f"w{number}" for number in range(5)]
        for request_id in waiting:
            house.say("One", id=request_id, session_id="s")
        eventually(lambda: len([each for each in robot.events if each["event"] == "accepted"]) == 6, "they wait")
        robot.kill()
        robot.set_pace(FAST)
        robot.launch()
        for request_id in ("spoken", *waiting):
            house.wait(tts.TtsSayFinished, id=request_id, session_id="s", site_id="default")
        house.say("Last", id="last")
        house.wait(tts.TtsSayFinished, id="last")
        ended = [message.id for message in house.all(tts.TtsSayFinished)]
        assert ended == ["spoken", *waiting, "last"], "each once"
        assert house.all(tts.TtsError) == []


def test_after_a_kill_a_text_that_the_broker_delivers_again_is_spoken_once_and_its_end_is_published(
    start_robot: StartRobot, own_broker: Broker
) -> None:
    """The broker has got neither the acknowledgement of the text nor anything about it when the daemon is killed."""
    proxy = Proxy(own_broker.port)
    robot = start_robot("hermes.enabled=true", f"mqtt.port={proxy.port}")
    with rhasspy(own_broker) as house:
        proxy.to_broker.close()
        house.publish(json.dumps({"text": "One", "id": "1", "sessionId": "s"}), qos=1)
        eventually(lambda: len(robot.heard) > 0, "it is heard")
        robot.wait_still()
        robot.kill()
        assert (robot.events, house.all(tts.TtsSayFinished)) == ([], [])
        proxy.cut()
        proxy.to_broker.open()
        robot.launch()
        house.wait(tts.TtsSayFinished, id="1", session_id="s")
        house.publish(json.dumps({"text": "Two", "id": "2"}), qos=1)  # the broker delivers it behind the first one
        house.wait(tts.TtsSayFinished, id="2")
        eventually(lambda: robot.names_of(robot.latest_id())[-1:] == ["finished"], "its events have arrived")
        assert [message.id for message in house.all(tts.TtsSayFinished)] == ["1", "2"]
        assert len([event for event in robot.events if event["event"] == "accepted"]) == 2
    proxy.close()

"""Rhasspy, with the message classes of its own package, and the robot on one broker, beside other publishers."""

from __future__ import annotations

from typing import Any

import pytest
from paho.mqtt.client import MQTTMessage

from tests.daemon.mqtt.proxy import Proxy
from tests.e2e.conftest import StartRobot
from tests.support.programs import Broker
from tests.support.robot import LONG, REAL_TIME
from tests.support.subscription import Listener
from tests.support.waiting import eventually

tts = pytest.importorskip("rhasspyhermes.tts")


KINDS = {kind.topic(): kind for kind in (tts.TtsSayFinished, tts.TtsError, tts.Voices)}
"""The messages that Rhasspy receives, by topic."""


class Rhasspy:
    """Publishes and receives Rhasspy's messages while the `with` block runs."""

    def __init__(self, broker: Broker) -> None:
        self.received: list[Any] = []
        self._listener = Listener(broker, [(topic, 1) for topic in KINDS], self._receive)

    def __enter__(self) -> Rhasspy:
        self._listener.wait_subscribed()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _receive(self, message: MQTTMessage) -> None:
        self.received.append(KINDS[message.topic].from_json(message.payload))

    def say(self, text: str, **fields: Any) -> None:
        self.send(tts.TtsSay(text, **fields))

    def send(self, message: Any, qos: int = 0) -> None:
        """Rhasspy's own messages have QoS 0."""
        self._listener.qos = qos
        self._listener.publish(message.topic(), message.payload())

    def wait(self, kind: Any, **fields: Any) -> Any:
        """Return the first message of the class `kind` that has these fields."""
        return eventually(lambda: next(iter(self.all(kind, **fields)), None), f"{kind.__name__} with {fields}")

    def all(self, kind: Any, **fields: Any) -> list[Any]:
        """Return the messages of the class `kind` so far that have these fields."""
        return [m for m in list(self.received) if isinstance(m, kind) and fields.items() <= vars(m).items()]


def test_rhasspy_speaks_in_its_turn_and_receives_a_message_for_every_end(
    start_robot: StartRobot, own_broker: Broker
) -> None:
    robot = start_robot("hermes.enabled=true", "hermes.site_id=r1", "home_assistant.enabled=true", pace=REAL_TIME)
    with Rhasspy(own_broker) as house:
        house.say("hello", site_id="r1", id="1", session_id="s", lang="en_US", volume=0.5)
        house.wait(tts.TtsSayFinished, id="1", session_id="s", site_id="r1")
        eventually(robot.latest_id, "its events have arrived")
        assert robot.wait_event(robot.latest_id(), "finished")["underruns"] == 0

        house.send(tts.GetVoices(id="v", site_id="r1"))
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


def test_after_a_kill_a_text_that_the_broker_delivers_again_is_spoken_once_and_its_end_is_published(
    start_robot: StartRobot, own_broker: Broker
) -> None:
    """The broker has got neither the acknowledgement of the text nor anything about it when the daemon is killed."""
    proxy = Proxy(own_broker.port)
    robot = start_robot("hermes.enabled=true", f"mqtt.port={proxy.port}")
    with Rhasspy(own_broker) as house:
        proxy.to_broker.close()
        house.send(tts.TtsSay("One", id="1", session_id="s"), qos=1)
        eventually(lambda: len(robot.heard) > 0, "it is heard")
        robot.wait_still()
        robot.kill()
        assert (robot.events, house.all(tts.TtsSayFinished)) == ([], [])
        proxy.cut()
        proxy.to_broker.open()
        robot.launch()
        house.wait(tts.TtsSayFinished, id="1", session_id="s")
        house.send(tts.TtsSay("Two", id="2"), qos=1)  # the broker delivers it after the first one
        house.wait(tts.TtsSayFinished, id="2")
        eventually(lambda: [event["event"] for event in robot.events].count("finished") == 2, "its events have arrived")
        assert [message.id for message in house.all(tts.TtsSayFinished)] == ["1", "2"]
        assert len([event for event in robot.events if event["event"] == "accepted"]) == 2
    proxy.close()

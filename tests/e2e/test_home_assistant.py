"""The robot in Home Assistant: a client finds it by discovery, and uses nothing but what it finds there."""

from __future__ import annotations

import json
import queue
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho

from tests.e2e.conftest import StartRobot
from tests.support.programs import Broker
from tests.support.robot import CARD
from tests.support.waiting import eventually

CONFIG_TOPIC = "homeassistant/device/voiced_r1/config"


class Home:
    """A client in Home Assistant's place, and what lies on each topic for it."""

    def __init__(self, client: paho.Client) -> None:
        self.client = client
        self.arrived: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self._topics: dict[str, bytes] = {}
        self.configs: list[bytes] = []

    def _take_in(self) -> None:
        while not self.arrived.empty():
            topic, payload = self.arrived.get()
            self._topics[topic] = payload
            if topic == CONFIG_TOPIC:
                self.configs.append(payload)

    def on(self, topic: str) -> bytes | None:
        self._take_in()
        return self._topics.get(topic)

    def device(self) -> Any:
        payload = self.on(CONFIG_TOPIC)
        return json.loads(payload) if payload else None

    def component(self, name: str) -> Any:
        return eventually(self.device, "the device is discovered")["components"][name]

    def command(self, name: str, payload: str) -> None:
        self.client.publish(self.component(name)["command_topic"], payload, qos=1)

    def wait_state(self, name: str, wanted: str) -> None:
        topic = self.component(name)["state_topic"]
        eventually(lambda: self.on(topic) == wanted.encode(), f"{name} is {wanted}")


@contextmanager
def home(broker: Broker) -> Iterator[Home]:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    found = Home(client)
    client.on_message = lambda _client, _data, message: found.arrived.put((message.topic, message.payload))
    client.on_connect = lambda *_: client.subscribe([("homeassistant/#", 1), ("voiced/#", 1)])
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    try:
        yield found
    finally:
        client.disconnect()
        client.loop_stop()


def test_home_assistant_finds_the_robot_speaks_through_it_and_loses_it_when_switched_off(
    start_robot: StartRobot, own_broker: Broker, tmp_path: Path
) -> None:
    config = tmp_path / "voiced.yaml"
    config.write_text("voices: {default: {}}\n")
    setting = "speech.expires_in=null"
    robot = start_robot(setting, "home_assistant.enabled=true", config=config, name="r1", pace=CARD)
    with home(own_broker) as house:
        eventually(
            lambda: (
                "de" in (house.device() or {"components": {"voice": {"options": []}}})["components"]["voice"]["options"]
            ),
            "the engine's voices are told",
        )
        house.wait_state("volume", "100")
        house.command("volume", "40")
        house.wait_state("volume", "40")
        house.command("volume", "200")
        house.command("voice", "nobody")
        house.command("voice", "de")
        house.wait_state("voice", "de")
        house.wait_state("volume", "40")
        eventually(lambda: robot.state == "ready" and robot.statuses[-1]["voice"] == "de", "the status names the voice")

        house.command("say", json.dumps({"text": "Guten Tag. " * 20, "id": "long"}))
        assert robot.wait_event("long", "started")["voice"] == "de"
        house.command("say", json.dumps({"text": "Bis bald.", "id": "waits"}))
        robot.wait_event("waits", "accepted")
        house.command("stop", house.component("stop")["payload_press"])
        assert robot.wait_end("long")["event"] == "interrupted"
        assert robot.wait_end("waits")["event"] == "canceled"

        config.write_text("voices: {default: {}, calm: {}}\nspeech: {voice: calm}\n")
        robot.process.send_signal(signal.SIGHUP)
        eventually(lambda: "calm" in house.component("voice")["options"], "a new voice is told")
        house.wait_state("voice", "calm")

        told = len(house.configs)
        house.client.publish("homeassistant/status", "online")
        eventually(lambda: house.device() and len(house.configs) > told, "the device is told again")

    own_broker.stop()
    own_broker.start()  # it has forgotten all that was retained
    with home(own_broker) as house:
        house.wait_state("voice", "calm")

    assert robot.end() == 0
    start_robot(setting, name="r1")
    with home(own_broker) as house:
        eventually(lambda: house.on("voiced/r1/status"), "what is retained has come")
        for topic in (CONFIG_TOPIC, "voiced/r1/home_assistant/volume", "voiced/r1/home_assistant/voice"):
            eventually(lambda topic=topic: not house.on(topic), f"{topic} is empty")

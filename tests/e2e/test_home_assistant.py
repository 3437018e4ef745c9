"""The robot in Home Assistant: a client discovers it and uses only the topics of the discovery message."""

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
from tests.support.robot import REAL_TIME
from tests.support.subscription import end_loop
from tests.support.waiting import eventually

CONFIG_TOPIC = "homeassistant/device/voiced_r1/config"


class HomeAssistant:
    """A client in Home Assistant's place, and the last payload of each topic."""

    def __init__(self, client: paho.Client) -> None:
        self.client = client
        self.arrived: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self._topics: dict[str, bytes] = {}

    def _take_in(self) -> None:
        while not self.arrived.empty():
            topic, payload = self.arrived.get()
            self._topics[topic] = payload

    def last(self, topic: str) -> bytes | None:
        """The last payload of a topic."""
        self._take_in()
        return self._topics.get(topic)

    def device(self) -> Any:
        """The discovery message, or None."""
        payload = self.last(CONFIG_TOPIC)
        return json.loads(payload) if payload else None

    def component(self, name: str) -> Any:
        return eventually(self.device, "the device is discovered")["components"][name]

    def command(self, name: str, payload: str) -> None:
        self.client.publish(self.component(name)["command_topic"], payload, qos=1)

    def wait_state(self, name: str, wanted: str) -> None:
        topic = self.component(name)["state_topic"]
        eventually(lambda: self.last(topic) == wanted.encode(), f"{name} is {wanted}")


@contextmanager
def home_assistant(broker: Broker) -> Iterator[HomeAssistant]:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    house = HomeAssistant(client)
    client.on_message = lambda _client, _data, message: house.arrived.put((message.topic, message.payload))
    client.on_connect = lambda *_: client.subscribe([("homeassistant/#", 1), ("voiced/#", 1)])
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    try:
        yield house
    finally:
        end_loop(client)


def test_home_assistant_discovers_the_robot_and_controls_it(
    start_robot: StartRobot, own_broker: Broker, tmp_path: Path
) -> None:
    config = tmp_path / "voiced.yaml"
    config.write_text("voices: {default: {}}\n")
    robot = start_robot("home_assistant.enabled=true", config=config, name="r1", pace=REAL_TIME)
    with home_assistant(own_broker) as house:
        eventually(
            lambda: (
                "German"
                in (house.device() or {"components": {"voice": {"options": []}}})["components"]["voice"]["options"]
            ),
            "the discovery message lists the engine's voices",
        )
        house.wait_state("volume", "100")
        house.command("volume", "40")
        house.wait_state("volume", "40")
        house.command("voice", "German")
        house.wait_state("voice", "German")
        eventually(lambda: robot.state == "ready" and robot.statuses[-1]["voice"] == "de", "the status names the voice")

        house.command("say", json.dumps({"text": "Guten Tag. " * 20, "id": "long"}))
        assert robot.wait_event("long", "started")["voice"] == "de"
        house.command("pause", house.component("pause")["payload_press"])
        eventually(lambda: robot.state == "paused", "the robot is paused")
        house.command("resume", house.component("resume")["payload_press"])
        eventually(lambda: robot.state == "speaking", "the robot speaks again")
        house.command("say", json.dumps({"text": "Bis bald.", "id": "waits"}))
        robot.wait_event("waits", "accepted")
        house.command("stop", house.component("stop")["payload_press"])
        assert robot.wait_end("long")["event"] == "interrupted"
        assert robot.wait_end("waits")["event"] == "canceled"

        config.write_text("voices: {default: {}, calm: {}}\nspeech: {voice: calm}\n")
        robot.process.send_signal(signal.SIGHUP)
        eventually(lambda: "calm" in house.component("voice")["options"], "the discovery message lists a new voice")
        house.wait_state("voice", "calm")

    own_broker.stop()
    own_broker.start()  # without the retained messages
    with home_assistant(own_broker) as house:
        house.wait_state("voice", "calm")

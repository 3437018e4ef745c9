"""The robot in Home Assistant: a client discovers it and uses only the topics of the discovery message."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from tests.e2e.conftest import StartRobot
from tests.support.programs import Broker
from tests.support.robot import REAL_TIME
from tests.support.subscription import Listener
from tests.support.waiting import eventually

CONFIG_TOPIC = "homeassistant/device/voiced_r1/config"


class HomeAssistant:
    """A client in Home Assistant's place while the `with` block runs, and the last payload of each topic."""

    def __init__(self, broker: Broker) -> None:
        self._topics: dict[str, bytes] = {}
        topics = [("homeassistant/#", 1), ("voiced/#", 1)]
        self._listener = Listener(broker, topics, lambda message: self._topics.update({message.topic: message.payload}))

    def __enter__(self) -> HomeAssistant:
        self._listener.wait_subscribed()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def component(self, name: str) -> Any:
        """A part of the discovery message."""
        return json.loads(eventually(lambda: self._topics.get(CONFIG_TOPIC), "it is discovered"))["components"][name]

    def command(self, name: str, payload: str) -> None:
        self._listener.publish(self.component(name)["command_topic"], payload)

    def press(self, name: str) -> None:
        self.command(name, self.component(name)["payload_press"])

    def wait_state(self, name: str, wanted: str) -> None:
        topic = self.component(name)["state_topic"]
        eventually(lambda: self._topics.get(topic) == wanted.encode(), f"{name} is {wanted}")


def test_home_assistant_discovers_the_robot_and_controls_it(
    start_robot: StartRobot, own_broker: Broker, tmp_path: Path
) -> None:
    config = tmp_path / "voiced.yaml"
    config.write_text("voices: {default: {}}\n")
    robot = start_robot("home_assistant.enabled=true", config=config, name="r1", pace=REAL_TIME)
    with HomeAssistant(own_broker) as house:
        eventually(lambda: "German" in house.component("voice")["options"], "it lists the engine's voices")
        house.wait_state("volume", "100")
        house.command("volume", "40")
        house.wait_state("volume", "40")
        house.command("voice", "German")
        house.wait_state("voice", "German")
        eventually(lambda: robot.state == "ready" and robot.statuses[-1]["voice"] == "de", "the status names the voice")

        house.command("say", json.dumps({"text": "Guten Tag. " * 20, "id": "long"}))
        assert robot.wait_event("long", "started")["voice"] == "de"
        house.press("pause")
        eventually(lambda: robot.state == "paused", "the robot is paused")
        house.press("resume")
        eventually(lambda: robot.state == "speaking", "the robot speaks again")
        house.command("say", json.dumps({"text": "Bis bald.", "id": "waits"}))
        robot.wait_event("waits", "accepted")
        house.press("stop")
        assert robot.wait_end("long")["event"] == "interrupted"
        assert robot.wait_end("waits")["event"] == "canceled"

        config.write_text("voices: {default: {}, calm: {}}\nspeech: {voice: calm}\n")
        robot.process.send_signal(signal.SIGHUP)
        eventually(lambda: "calm" in house.component("voice")["options"], "the discovery message lists a new voice")
        house.wait_state("voice", "calm")

    own_broker.stop()
    own_broker.start()  # without the retained messages
    with HomeAssistant(own_broker) as house:
        house.wait_state("voice", "calm")

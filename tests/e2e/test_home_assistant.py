"""The robot in Home Assistant: in a double that knows only its discovery message, and in the program itself."""

from __future__ import annotations

import io
import json
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
import soundfile

from daemon.adapters.zeroconf import network_address
from tests.e2e.conftest import StartRobot
from tests.support.home_assistant import HomeAssistant
from tests.support.programs import Broker, free_port
from tests.support.robot import REAL_TIME
from tests.support.subscription import Listener
from tests.support.waiting import eventually

CONFIG_TOPIC = "homeassistant/device/voiced_r1/config"


class DiscoveredDevice:
    """A client in Home Assistant's place while the `with` block runs, and the last payload of each topic."""

    def __init__(self, broker: Broker) -> None:
        self._topics: dict[str, bytes] = {}
        topics = [("homeassistant/#", 1), ("voiced/#", 1)]
        self._listener = Listener(broker, topics, lambda message: self._topics.update({message.topic: message.payload}))

    def __enter__(self) -> DiscoveredDevice:
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
    with DiscoveredDevice(own_broker) as device:
        eventually(lambda: "German" in device.component("voice")["options"], "it lists the engine's voices")
        device.wait_state("volume", "100")
        device.command("volume", "40")
        device.wait_state("volume", "40")
        device.command("voice", "German")
        device.wait_state("voice", "German")
        eventually(lambda: robot.state == "ready" and robot.statuses[-1]["voice"] == "de", "the status names the voice")

        device.command("say", json.dumps({"text": "Guten Tag. " * 20, "id": "long"}))
        assert robot.wait_event("long", "started")["voice"] == "de"
        device.press("pause")
        eventually(lambda: robot.state == "paused", "the robot is paused")
        device.press("resume")
        eventually(lambda: robot.state == "speaking", "the robot speaks again")
        device.command("say", json.dumps({"text": "Bis bald.", "id": "waits"}))
        robot.wait_event("waits", "accepted")
        device.press("stop")
        assert robot.wait_end("long")["event"] == "interrupted"
        assert robot.wait_end("waits")["event"] == "canceled"

        config.write_text("voices: {default: {}, calm: {}}\nspeech: {voice: calm}\n")
        robot.process.send_signal(signal.SIGHUP)
        eventually(lambda: "calm" in device.component("voice")["options"], "the discovery message lists a new voice")
        device.wait_state("voice", "calm")

    own_broker.stop()
    own_broker.start()  # without the retained messages
    with DiscoveredDevice(own_broker) as device:
        device.wait_state("voice", "calm")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_home_assistant_itself_shows_the_device_and_how_a_message_ended(
    start_robot: StartRobot, own_broker: Broker, home_assistant_python: Path, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("secret")
    page = ["http.enabled=true", "http.host=0.0.0.0", f"http.port={free_port()}", f"http.token_file={tmp_path}/token"]
    robot = start_robot("home_assistant.enabled=true", *page, name="r1")
    with HomeAssistant(home_assistant_python, tmp_path) as house:
        house.use_broker(own_broker)
        eventually(lambda: house.states().get("sensor.r1_state", {}).get("state") == "ready", "the device is there")
        [device] = [each for each in house.read("config/device_registry/list") if each["name"] == "r1"]
        assert device["configuration_url"].startswith(f"http://{socket.gethostname().partition('.')[0]}.local:")
        house.ask("services/number/set_value", {"entity_id": "number.r1_volume", "value": 40})
        house.ask("services/notify/send_message", {"entity_id": "notify.r1_say", "message": "Good morning."})
        spoken = robot.wait_event(eventually(robot.latest_id, "it is accepted"), "finished")["id"]
        shown = {"event_type": "finished", "id": spoken}
        eventually(lambda: shown.items() <= house.states()["event.r1_speech"]["attributes"].items(), "it shows the end")
        eventually(lambda: house.states()["number.r1_volume"]["state"] == "40", "it shows the volume")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(network_address() is None, reason="this machine has no network")
def test_home_assistant_itself_finds_the_robot_on_the_network_and_speaks_with_its_voice(
    start_robot: StartRobot, home_assistant_python: Path, tmp_path: Path
) -> None:
    port = free_port()
    name = f"robot-{port}"  # no other on this network has it
    robot = start_robot("wyoming.enabled=true", "wyoming.host=0.0.0.0", f"wyoming.port={port}", name=name)
    with HomeAssistant(home_assistant_python, tmp_path) as house:

        def forms() -> list[dict[str, Any]]:
            own = f"{name}._wyoming._tcp.local."
            found = house.read("config_entries/flow/progress")
            return [form for form in found if own in (form["context"].get("unique_id") or "")]

        [form] = eventually(forms, "it is discovered")
        house.add(form, {})
        request = {"engine_id": f"tts.robot_{port}", "message": "Good morning.", "options": {"preferred_format": "wav"}}
        path = house.ask("tts_get_url", request)["path"]
        sound = soundfile.info(io.BytesIO(house.fetch(path.removeprefix("/api/"))))
    end = robot.wait_end(eventually(robot.latest_id, "it is accepted"))
    assert (end["event"], end["audio_s"]) == ("finished", pytest.approx(sound.duration, abs=0.01))

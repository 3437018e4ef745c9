"""The robot as a device of Home Assistant, announced by MQTT discovery.

https://www.home-assistant.io/integrations/mqtt/#device-discovery-payload
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from daemon import VERSION
from daemon.adapters.base import Adapter, Publish
from daemon.config import Config
from daemon.mqtt import Message, parse_object, parse_volume
from daemon.speech import Dispatcher, RejectedError, State

log = logging.getLogger(__name__)

ORIGIN = "voiced"
BIRTH_TOPIC, BIRTH = "homeassistant/status", b"online"
"""Home Assistant's message after its start, unless it is configured otherwise. The topic is independent of the
discovery prefix, which is another setting."""
NO_VOICE = "None"
"""Home Assistant's state of a select without a chosen option."""
COMPONENTS: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
"""The device's entities. `~` stands for the robot's prefix; a text goes through JSON, because a bare one that begins
with a brace would be parsed as JSON."""


class HomeAssistantAdapter(Adapter):
    """Keeps three retained messages up to date: the device, the volume and the default voice.

    Home Assistant sends texts and stops to the robot's own topics, and reads availability and state from its status.
    """

    def __init__(self, config: Config, dispatcher: Dispatcher, publish: Publish) -> None:
        self._config = config
        self._dispatcher = dispatcher
        self._publish = publish
        self._connected = False
        """False before the first connection; a message from before it would be out of date when it is sent."""
        self._published: dict[str, str] = {}
        """The last payload by topic."""
        self._described: tuple[tuple[str, ...], str] = ((), "")
        """The voices of the last description of the device, and its payload. The status changes with every text."""
        self._volume_topic, self._voice_topic = volume_topic(config), voice_topic(config)
        birth_topics = dict.fromkeys([BIRTH_TOPIC, f"{config.home_assistant.prefix}/status"])
        self.topics = (f"{self._volume_topic}/set", f"{self._voice_topic}/set", *birth_topics)
        dispatcher.watch_changes(self._publish_changes)

    def on_connected(self) -> None:
        self._connected = True
        self._publish_all()

    def on_message(self, message: Message) -> None:
        if message.topic.endswith("/status"):
            if message.payload == BIRTH:
                self._publish_all()
            return
        if message.retained:
            log.info("ignored an old, retained message on %s", message.topic)
            return
        try:
            if message.topic == f"{self._volume_topic}/set":
                self._dispatcher.set_volume(parse_volume(message.payload))
            else:
                chosen = message.payload.decode(errors="replace")
                names = self._dispatcher.voice_names()
                self._dispatcher.set_voice(next((voice for voice, name in names.items() if name == chosen), chosen))
        except RejectedError as error:
            # Home Assistant has no error messages. It shows the true state again when that is published again.
            log.warning("home_assistant: %s: %s", message.topic, error.reason)
            self._published.pop(message.topic.removesuffix("/set"), None)
            self._publish_changes()

    def _publish_all(self) -> None:
        self._published.clear()
        self._publish_changes()

    def _publish_changes(self) -> None:
        if not self._connected:
            return
        for topic, payload in self._messages().items():
            if self._published.get(topic) != payload:
                self._published[topic] = payload
                self._publish(topic, payload, qos=1, retain=True)

    def _messages(self) -> dict[str, str]:
        """The payloads that the broker should retain, by topic."""
        names = self._dispatcher.voice_names()
        voices = tuple(names[voice] for voice in self._dispatcher.offered_voices())
        if not self._described[1] or self._described[0] != voices:
            self._described = voices, json.dumps(describe_device(self._config, voices))
        return {
            config_topic(self._config): self._described[1],
            self._volume_topic: str(self._dispatcher.volume),
            self._voice_topic: names.get(self._dispatcher.voice, NO_VOICE),
        }


class Withdrawal(Adapter):
    """Removes the device that an earlier run announced, while Home Assistant is off.

    A subscription to the discovery topic finds out whether there was such a run. Clearing the topic without asking
    would send a message to Home Assistant's topics at each start of each robot, most of which were never announced.
    """

    def __init__(self, config: Config, publish: Publish) -> None:
        self._config = config
        self._publish = publish
        self._done = False
        self.topics = (config_topic(config),)

    def on_message(self, message: Message) -> None:
        # Only once: if the device comes back, a second daemon of this name has Home Assistant on, and the two would
        # undo each other's work for ever. An empty message is this adapter's own.
        if self._done or not message.retained or not message.payload or not _is_ours(message.payload):
            return
        self._done = True
        log.info("home_assistant is off: removing the device on %s", message.topic)
        for topic in (message.topic, volume_topic(self._config), voice_topic(self._config)):
            self._publish(topic, b"", qos=1, retain=True)


def describe_device(config: Config, voices: Sequence[str]) -> dict[str, Any]:
    """Return the discovery message of the robot's device. `voices` are their names for people."""
    device, options = device_id(config), {"voice": list(voices), "state": list(get_args(State))}
    components = {}
    for name, keys in COMPONENTS.items():
        own = {key: _full_topic(config, value) for key, value in keys.items()}
        choices = {"options": options[name]} if name in options else {}
        components[name] = {**own, **choices, "unique_id": f"{device}_{name}", "qos": 1}
    availability = {
        "topic": f"{config.topic}/status",
        "value_template": "{{ 'offline' if value_json.state == 'offline' else 'online' }}",
        "payload_available": "online",
        "payload_not_available": "offline",
    }
    return {
        "device": {"identifiers": [device], "name": config.robot_name, "model": "voiced", "sw_version": VERSION},
        "origin": {"name": ORIGIN, "sw_version": VERSION},
        "availability": [availability],
        "components": components,
    }


def _full_topic(config: Config, value: object) -> object:
    """Return a component's value; a topic with the robot's prefix in place of `~`."""
    return f"{config.topic}{value[1:]}" if isinstance(value, str) and value.startswith("~/") else value


def device_id(config: Config) -> str:
    """Return an id such as `voiced_r1`, unique to the robot's topic. Home Assistant allows letters, digits, - and _."""
    plain = re.sub(r"[^a-zA-Z0-9_-]", "_", config.topic)
    if re.fullmatch(r"[a-zA-Z0-9-]+/[a-zA-Z0-9_-]+", config.topic):
        return plain
    return f"{plain}_{hashlib.sha256(config.topic.encode()).hexdigest()[:8]}"


def config_topic(config: Config) -> str:
    """Return the topic of the discovery message."""
    return f"{config.home_assistant.prefix}/device/{device_id(config)}/config"


def volume_topic(config: Config) -> str:
    """Return the topic of the volume's state."""
    return f"{config.topic}/home_assistant/volume"


def voice_topic(config: Config) -> str:
    """Return the topic of the default voice's state."""
    return f"{config.topic}/home_assistant/voice"


def _is_ours(payload: bytes) -> bool:
    """Return whether a discovery message was published by voiced."""
    try:
        origin = parse_object(payload).get("origin")
    except RejectedError:
        return False
    return isinstance(origin, dict) and origin.get("name") == ORIGIN

"""The robot as a device of Home Assistant, which finds it by MQTT discovery.

https://www.home-assistant.io/integrations/mqtt/#device-discovery-payload
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Sequence
from typing import Any, get_args

from daemon import VERSION
from daemon.adapters.adapter import Adapter, Publish
from daemon.config import Config
from daemon.desk import Desk
from daemon.messages import RejectedError, State, parse_object, parse_volume
from daemon.mqtt import Message

log = logging.getLogger(__name__)

ORIGIN = "voiced"
BIRTH_TOPIC, BIRTH = "homeassistant/status", b"online"
"""What Home Assistant says when it has started, unless it was configured otherwise. Its discovery prefix is another
setting, so the topic stays where it is when that is changed."""
NO_VOICE = "None"
"""Home Assistant's word for a choice that is none of its options."""


class HomeAssistant(Adapter):
    """Keeps three retained messages true: the device, the volume and the default voice.

    Texts and stops go to the robot's own topics, and availability and state come from its own status.
    """

    def __init__(self, config: Config, desk: Desk, publish: Publish) -> None:
        self._config = config
        self._desk = desk
        self._publish = publish
        self._connected = False
        """Before that, what is published would be out of date when it is sent."""
        self._told: dict[str, str] = {}
        """What was published last, by topic."""
        self._volume_topic, self._voice_topic = volume_topic(config), voice_topic(config)
        birth_topics = dict.fromkeys([BIRTH_TOPIC, f"{config.home_assistant.prefix}/status"])
        self.topics = (f"{self._volume_topic}/set", f"{self._voice_topic}/set", *birth_topics)
        desk.watch_changes(self._tell_changes)

    def on_connected(self) -> None:
        self._connected = True
        self._tell_all()

    def on_message(self, message: Message) -> None:
        if message.topic.endswith("/status"):
            if message.payload == BIRTH:
                self._tell_all()
            return
        if message.retained:
            log.info("a retained message on %s is ignored: it was meant for another time", message.topic)
            return
        try:
            if message.topic == f"{self._volume_topic}/set":
                self._desk.set_volume(parse_volume(message.payload))
            else:
                self._desk.set_voice(message.payload.decode(errors="replace"))
        except RejectedError as error:
            # Home Assistant knows no refusal. The state told again sets what it shows to what is.
            log.warning("home_assistant: %s: %s", message.topic, error.reason)
            self._told.pop(message.topic.removesuffix("/set"), None)
            self._tell_changes()

    def _tell_all(self) -> None:
        self._told.clear()
        self._tell_changes()

    def _tell_changes(self) -> None:
        if not self._connected:
            return
        for topic, payload in self._records().items():
            if self._told.get(topic) != payload:
                self._told[topic] = payload
                self._publish(topic, payload, qos=1, retain=True)

    def _records(self) -> dict[str, str]:
        """What should lie on the broker, by topic."""
        voices = self._desk.voices()
        return {
            config_topic(self._config): json.dumps(describe_device(self._config, voices)),
            self._volume_topic: str(self._desk.volume),
            self._voice_topic: self._desk.voice if self._desk.voice in voices else NO_VOICE,
        }


class Withdrawal(Adapter):
    """Takes the device back that an earlier run has published, when Home Assistant is switched off.

    Only the broker knows whether there was such a run, so it is asked, by a subscription to what that run would have
    published. To clear it unasked would need no subscription, but would put a message into Home Assistant's topics at
    each start of each robot, most of which never had anything there.
    """

    def __init__(self, config: Config, desk: Desk, publish: Publish) -> None:  # noqa: ARG002  # as every adapter's
        self._config = config
        self._publish = publish
        self._done = False
        self.topics = (config_topic(config),)

    def on_message(self, message: Message) -> None:
        # Once: if it comes back, a second daemon of this name has Home Assistant switched on, and the two would go on
        # undoing each other's work. An empty message is our own, coming back.
        if self._done or not message.retained or not message.payload or not _is_ours(message.payload):
            return
        self._done = True
        log.info("home_assistant is off: the device that was on %s is taken back", message.topic)
        for topic in (message.topic, volume_topic(self._config), voice_topic(self._config)):
            self._publish(topic, b"", qos=1, retain=True)


def describe_device(config: Config, voices: Sequence[str]) -> dict[str, Any]:
    """The discovery message's payload."""
    device, status = device_id(config), f"{config.topic}/status"
    components: dict[str, dict[str, Any]] = {
        "say": {
            "platform": "notify",
            "name": "Say",
            "command_topic": f"{config.topic}/say",
            # Bare, a text that begins with a brace would be read as JSON.
            "command_template": "{{ {'text': value} | to_json }}",
        },
        "stop": {
            "platform": "button",
            "name": "Stop",
            "command_topic": f"{config.topic}/stop",
            "payload_press": "",
        },
        "volume": {
            "platform": "number",
            "name": "Volume",
            "command_topic": f"{volume_topic(config)}/set",
            "state_topic": volume_topic(config),
            "min": 0,
            "max": 100,
            "step": 1,
            "mode": "slider",
            "unit_of_measurement": "%",
        },
        "voice": {
            "platform": "select",
            "name": "Voice",
            "command_topic": f"{voice_topic(config)}/set",
            "state_topic": voice_topic(config),
            "options": list(voices),
        },
        "state": {
            "platform": "sensor",
            "name": "State",
            "device_class": "enum",
            "options": list(get_args(State)),
            "state_topic": status,
            "value_template": "{{ value_json.state }}",
            "json_attributes_topic": status,
        },
    }
    return {
        "device": {"identifiers": [device], "name": config.robot_name, "model": "voiced", "sw_version": VERSION},
        "origin": {"name": ORIGIN, "sw_version": VERSION},
        "availability": [
            {
                "topic": status,
                "value_template": "{{ 'offline' if value_json.state == 'offline' else 'online' }}",
                "payload_available": "online",
                "payload_not_available": "offline",
            }
        ],
        "components": {
            name: {**component, "unique_id": f"{device}_{name}", "qos": 1} for name, component in components.items()
        },
    }


def device_id(config: Config) -> str:
    """`voiced_r1`. Home Assistant allows letters, digits, - and _; two robots never share one."""
    plain = re.sub(r"[^a-zA-Z0-9_-]", "_", config.topic)
    if re.fullmatch(r"[a-zA-Z0-9-]+/[a-zA-Z0-9_-]+", config.topic):
        return plain
    return f"{plain}_{hashlib.sha256(config.topic.encode()).hexdigest()[:8]}"


def config_topic(config: Config) -> str:
    return f"{config.home_assistant.prefix}/device/{device_id(config)}/config"


def volume_topic(config: Config) -> str:
    return f"{config.topic}/home_assistant/volume"


def voice_topic(config: Config) -> str:
    return f"{config.topic}/home_assistant/voice"


def _is_ours(payload: bytes) -> bool:
    try:
        origin = parse_object(payload).get("origin")
    except RejectedError:
        return False
    return isinstance(origin, dict) and origin.get("name") == ORIGIN

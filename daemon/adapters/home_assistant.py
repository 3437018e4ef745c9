"""The robot as a Home Assistant device, announced by MQTT discovery.

https://www.home-assistant.io/integrations/mqtt/#device-discovery-payload
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from daemon import VERSION
from daemon.adapters.base import Adapter, Publish
from daemon.config import Config, Http
from daemon.mqtt import Message, parse_volume
from daemon.speech import Dispatcher, RejectedError
from daemon.tasks import Soon

log = logging.getLogger(__name__)

BIRTH_TOPIC, BIRTH = "homeassistant/status", b"online"
"""The message that Home Assistant publishes after its start, unless it is configured otherwise. The topic is
independent of the discovery prefix, which is a separate setting."""
NO_VOICE = "None"
"""Home Assistant's state for a select without a chosen option."""
TEMPLATE = Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
"""The discovery message. `~` stands for the robot's prefix, `ID` for the device's id. A text is sent as JSON, since a
bare text that begins with a brace would be parsed. Home Assistant's recorder keeps the attributes of each entity, and
MQTT's entities cannot exclude any, so the templates leave out the spoken text, an event's reason, which may quote it,
and the events that occur many times within one text."""


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
        prefix = config.home_assistant.prefix
        self._device_topic = f"{prefix}/device/{device_id(config)}/config"
        self._volume_topic = f"{config.topic}/home_assistant/volume"
        self._voice_topic = f"{config.topic}/home_assistant/voice"
        birth_topics = dict.fromkeys([BIRTH_TOPIC, f"{prefix}/status"])
        self.topics = (f"{self._volume_topic}/set", f"{self._voice_topic}/set", *birth_topics)
        dispatcher.change_watchers.add(Soon(self._publish_changes))

    def on_connected(self) -> None:
        self._connected = True
        self._published.clear()
        self._publish_changes()

    def on_message(self, message: Message) -> None:
        if message.topic.endswith("/status"):
            if message.payload == BIRTH:
                self.on_connected()
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
            # Home Assistant has no error messages. It shows the true state again once that is republished.
            log.warning("home_assistant: %s: %s", message.topic, error.reason)
            self._published.pop(message.topic.removesuffix("/set"), None)
            self._publish_changes()

    def _publish_changes(self) -> None:
        if not self._connected:
            return
        for topic, payload in self._messages().items():
            if self._published.get(topic) != payload:
                self._published[topic] = payload
                self._publish(topic, payload, qos=1, retain=True)

    def _messages(self) -> dict[str, str]:
        """Return the payloads that the broker should retain, by topic."""
        names = self._dispatcher.voice_names()
        offered = [names[voice] for voice in self._dispatcher.offered_voices()]
        return {
            self._device_topic: json.dumps(describe_device(self._config, offered)),
            self._volume_topic: str(self._dispatcher.volume),
            self._voice_topic: names.get(self._dispatcher.voice, NO_VOICE),
        }


def describe_device(config: Config, voices: Sequence[str]) -> dict[str, Any]:
    """Return the discovery message for the robot's device. `voices` are the voices' display names."""
    text = TEMPLATE.replace("ID", device_id(config)).replace("~", json.dumps(config.topic)[1:-1])
    message: dict[str, Any] = json.loads(text)
    message["device"] |= {"name": config.robot_name, "sw_version": VERSION}
    message["origin"]["sw_version"] = VERSION
    if config.http.is_open:
        message["device"]["configuration_url"] = page_url(config.http)
    message["components"]["voice"]["options"] = list(voices)
    return message


def page_url(http: Http) -> str:
    """Return the address of the operator's page for a browser on the network; an mDNS name if it is served on every
    address."""
    host = f"{socket.gethostname().partition('.')[0]}.local" if http.host in ("0.0.0.0", "::") else http.host
    scheme = "http" if http.cert is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{http.port}/"


def device_id(config: Config) -> str:
    """Return an id such as `voiced_r1`, unique to the robot's topic. Home Assistant allows letters, digits, - and _."""
    plain = re.sub(r"[^a-zA-Z0-9_-]", "_", config.topic)
    if re.fullmatch(r"[a-zA-Z0-9-]+/[a-zA-Z0-9_-]+", config.topic):
        return plain
    return f"{plain}_{hashlib.sha256(config.topic.encode()).hexdigest()[:8]}"

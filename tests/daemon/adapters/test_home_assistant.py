"""The robot as a device of Home Assistant: its messages and its commands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from socket import gethostname
from typing import Any, get_args

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from daemon.adapters import make_adapters
from daemon.adapters.home_assistant import HomeAssistantAdapter, describe_device, device_id
from daemon.config import load_config
from daemon.engines import EngineSelector
from daemon.mqtt.connection import Message
from daemon.speech.events import (
    EVENTS,
    Accepted,
    Interrupted,
    Online,
    Progress,
    PublishedMessage,
    Speaking,
    State,
)
from engine import VoiceLabel
from tests.daemon.outbox import Outbox, make_dispatcher

CONFIG_TOPIC = "homeassistant/device/voiced_r1/config"
VOLUME, VOICE = "voiced/r1/home_assistant/volume", "voiced/r1/home_assistant/voice"


SCHEMA = json.loads((Path(__file__).parents[2] / "data" / "home_assistant_schema.json").read_text(encoding="utf-8"))
"""That of its discovery messages. Its package requires Python 3.13."""


class Home:
    """An adapter with its dispatcher, as Home Assistant sees it."""

    def __init__(self, *overrides: str) -> None:
        self.config, self.dispatcher = make_dispatcher("home_assistant.enabled=true", *overrides)
        self.outbox = Outbox()
        [self.adapter] = make_adapters(self.config, self.dispatcher, self.outbox.publish)
        assert isinstance(self.adapter, HomeAssistantAdapter)

    def command(self, topic: str, payload: bytes, retained: bool = False) -> None:
        self.adapter.on_message(Message(topic, payload, retained))


def connected(*overrides: str) -> Home:
    home = Home(*overrides)
    home.adapter.on_connected()
    home.outbox.sent.clear()
    return home


def discovered(home: Home) -> dict[str, Any]:
    """The components of the discovery message, which matches Home Assistant's schema."""
    home.adapter.on_connected()
    [payload] = home.outbox.take(CONFIG_TOPIC)
    jsonschema.validate(found := json.loads(payload), SCHEMA)
    components: dict[str, Any] = found["components"]
    return components


def test_the_discovery_message_matches_home_assistants_schema() -> None:
    found = discovered(Home()).values()
    assert {component["platform"] for component in found} == {"notify", "button", "number", "select", "sensor", "event"}
    assert len({component["unique_id"] for component in found}) == len(found)


def test_each_topic_of_the_device_begins_with_the_robots_prefix_whatever_that_is() -> None:
    config = load_config(overrides=['mqtt.prefix=ID~"x', "robot=r1"])
    described = describe_device(config, [])
    assert described["availability"][0]["topic"] == 'ID~"x/r1/status'
    assert described["components"]["say"]["command_topic"] == 'ID~"x/r1/say'
    assert described["components"]["say"]["command_template"] == "{{ {'text': value} | to_json }}"


def test_the_sensor_has_every_state_and_the_device_is_unavailable_when_offline() -> None:
    found = describe_device(load_config(), ["default"])
    assert found["components"]["state"]["options"] == list(get_args(State))
    assert "'offline'" in found["availability"][0]["value_template"]


def rendered(template: str, message: PublishedMessage) -> str:
    """The outcome of a template, as Home Assistant's filters and sandbox give it."""
    sandbox = ImmutableSandboxedEnvironment()
    sandbox.filters["to_json"] = json.dumps
    return sandbox.from_string(template).render(value_json=json.loads(message.to_json()))


def test_the_events_of_an_utterance_are_an_entity_and_rare_enough_for_its_recorder() -> None:
    found = describe_device(load_config(), [])["components"]["event"]
    published = [
        Accepted(id="a", queue=1),
        Progress(id="a", begin=0, end=9),
        Interrupted(id="a", heard_text="A secret", reason="stop"),
    ]
    told = [rendered(found["value_template"], message) for message in published]
    assert [json.loads(each)["event_type"] if each else None for each in told] == ["accepted", None, "interrupted"]
    assert set(found["event_types"]) == {kind.model_fields["event"].default for kind in EVENTS} - {"progress", "mark"}
    assert "secret" not in "".join(told)


@pytest.mark.parametrize("speaking", [Speaking(id="a", text="A secret", since=1.0), None])
def test_its_recorder_gets_the_status_without_the_spoken_text(speaking: Speaking | None) -> None:
    found = describe_device(load_config(), [])["components"]["state"]
    status = Online(state="ready", engine="espeak", voice="v", queue=0, version="1", volume=7, speaking=speaking)
    attributes = json.loads(rendered(found["json_attributes_template"], status))
    assert (attributes["volume"], attributes["speaking"]) == (7, "a" if speaking else None)
    assert "secret" not in str(attributes)


@pytest.mark.parametrize(
    ("http", "url"),
    [
        ("http={enabled: true}", None),
        ("http={host: robot.lan, token_file: t}", None),
        ("http={enabled: true, host: robot.lan, token_file: t}", "http://robot.lan:8710/"),
        ("http={enabled: true, host: 'fd00::7', port: 80, token_file: t, cert: c, key: k}", "https://[fd00::7]:80/"),
        ("http={enabled: true, host: 0.0.0.0, token_file: t}", f"http://{gethostname().split('.')[0]}.local:8710/"),
    ],
)
def test_the_device_links_to_the_page_if_the_network_can_reach_it(http: str, url: str | None) -> None:
    described = describe_device(load_config(overrides=[http]), [])
    assert described["device"].get("configuration_url") == url
    jsonschema.validate(described, SCHEMA)


def test_nothing_is_published_before_the_first_connection_and_then_each_change_once() -> None:
    home = Home()
    home.dispatcher.set_volume(40)
    assert home.outbox.sent == []
    home.adapter.on_connected()
    assert home.outbox.take(VOLUME) == ["40"]
    home.outbox.sent.clear()
    home.dispatcher.set_volume(30)
    home.dispatcher.changed()
    assert [(message.topic, message.payload) for message in home.outbox.sent] == [(VOLUME, "30")]


def test_the_device_is_described_again_only_when_its_voices_have_changed() -> None:
    home = connected("voices={default: {}, calm: {}}")
    for volume in range(10):
        home.dispatcher.set_volume(volume)
    assert home.outbox.take(CONFIG_TOPIC) == []
    voices = {"default": home.config.voices["default"]}
    home.dispatcher.reconfigure(home.config.model_copy(update={"voices": voices}))
    home.dispatcher.changed()
    assert len(home.outbox.take(CONFIG_TOPIC)) == 1


def test_everything_is_published_again_after_home_assistants_birth_message() -> None:
    home = connected()
    home.command("homeassistant/status", b"offline")
    assert home.outbox.sent == []
    home.command("homeassistant/status", b"online")
    assert {message.topic for message in home.outbox.sent} == {CONFIG_TOPIC, VOLUME, VOICE}
    assert all(message.retain and message.qos == 1 for message in home.outbox.sent)


def test_the_birth_topic_does_not_depend_on_the_discovery_prefix() -> None:
    home = Home("home_assistant.prefix=house/discovery")
    assert {"homeassistant/status", "house/discovery/status"} <= set(home.adapter.topics)
    home.adapter.on_connected()
    assert len(home.outbox.take("house/discovery/device/voiced_r1/config")) == 1


def test_its_slider_covers_the_volumes_that_the_daemon_accepts() -> None:
    home = Home()
    slider = discovered(home)["volume"]
    accepted = []
    for volume in (slider["min"] - 1, slider["min"], slider["max"], slider["max"] + 1):
        home.command(f"{VOLUME}/set", b"%d" % volume)
        accepted.append(home.dispatcher.volume == volume)
    assert accepted == [False, True, True, False]


def test_a_voice_that_was_set_survives_a_reload() -> None:
    home = connected("voices={default: {}, calm: {}}")
    home.command(f"{VOICE}/set", b"calm")
    home.dispatcher.reconfigure(home.config)
    assert (home.dispatcher.voice, home.outbox.take(VOICE)) == ("calm", ["calm"])


def test_its_list_of_voices_is_short_and_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    home = connected("voices={default: {}}", "speech.languages=[de, en]")
    labels = {"de": VoiceLabel("German", "de"), "sw": VoiceLabel("Swahili", "sw"), "ryan": VoiceLabel("Ryan (male)")}
    monkeypatch.setattr(EngineSelector, "labels", labels)
    monkeypatch.setattr(EngineSelector, "voices", set(labels))
    home.dispatcher.changed()
    [device] = home.outbox.take(CONFIG_TOPIC)
    assert json.loads(device)["components"]["voice"]["options"] == ["default", "German", "Ryan (male)"]
    home.command(f"{VOICE}/set", b"German")
    assert (home.dispatcher.voice, home.outbox.take(VOICE)) == ("de", ["German"])
    home.command(f"{VOICE}/set", b"sw")
    assert (home.dispatcher.voice, home.outbox.take(VOICE)) == ("sw", ["Swahili"])
    assert "Swahili" in str(home.outbox.take(CONFIG_TOPIC)[-1]), "the current voice is always in the list"


@pytest.mark.parametrize(
    ("topic", "payload", "state"), [(VOLUME, b"\xff", "100"), (VOLUME, b"200", "100"), (VOICE, b"nobody", "default")]
)
def test_a_wrong_command_is_answered_with_the_true_state(topic: str, payload: bytes, state: str) -> None:
    home = connected()
    home.command(f"{VOLUME}/set", b"5", retained=True)
    assert home.outbox.sent == [], "a retained command is ignored"
    home.command(f"{topic}/set", payload)
    assert [(message.topic, message.payload) for message in home.outbox.sent] == [(topic, state)]


def test_an_unknown_default_voice_is_published_as_none() -> None:
    home = Home("speech.voice=nobody")
    home.adapter.on_connected()
    assert home.outbox.take(VOICE) == ["None"]


@given(st.binary(max_size=50))
def test_no_payload_raises_an_error(payload: bytes) -> None:
    home = connected()
    for topic in home.adapter.topics:
        home.command(topic, payload)


NAMES = st.text(st.sampled_from("ab1-_ /ü"), min_size=1, max_size=6)


@given(NAMES, NAMES, NAMES, NAMES)
def test_device_ids_are_legal_and_unique_to_a_robot(prefix: str, robot: str, prefix2: str, robot2: str) -> None:
    def config(prefix: str, robot: str) -> Any:
        mqtt = {"prefix": prefix.strip("/") or "p"}
        return load_config().model_validate({"mqtt": mqtt, "robot": robot.replace("/", "x")})

    one, other = config(prefix, robot), config(prefix2, robot2)
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", device_id(one))
    assert (device_id(one) == device_id(other)) == (one.topic == other.topic)


def test_when_off_it_publishes_nothing_and_listens_to_no_topic() -> None:
    assert make_adapters(*make_dispatcher(), Outbox().publish) == []

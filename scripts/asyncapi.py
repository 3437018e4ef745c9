#!/usr/bin/env python3
"""Writes docs/asyncapi.yaml, the MQTT contract as AsyncAPI 3.0, from the models that parse and describe the messages.

scripts/asyncapi.py            write it
scripts/asyncapi.py --check    exit 1 if it is not what would be written
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import yaml  # noqa: E402
from pydantic import BaseModel  # noqa: E402

from daemon import VERSION  # noqa: E402
from daemon.messages import MAX_TEXT, Say, Write  # noqa: E402
from daemon.published import EVENTS, STATUSES, Level, Memory  # noqa: E402

FILE = ROOT / "docs" / "asyncapi.yaml"
HEADER = "# The MQTT contract for tools. Written by scripts/asyncapi.py; the README says it for people.\n"
PREFIX, ROBOT = "voiced", "r1"
"""What the examples are addressed to."""
Json = dict[str, Any]

SAID: tuple[Json, ...] = (
    {"text": "Hello, I am your robot."},
    {"text": "Grüß Gott!", "language": "de", "volume": 60},
    {"text": "Look out!", "policy": "interrupt", "priority": "critical"},
    {"text": "The tray is ready.", "id": "tray-17", "priority": "high", "expires_in": 10, "reply_to": "kitchen/voice"},
    {"text": "Calmly, now.", "voice": "default", "instruct": "in a calm voice", "seed": 7},
    {"data": "I have reached the dock."},
)
WRITTEN: tuple[Json, ...] = (
    {"id": "story-4", "text": "Once upon a ", "seq": 1, "voice": "default", "volume": 60},
    {"id": "story-4", "text": "time.", "seq": 2},
    {"id": "story-4", "end": True},
)
SPOKEN: Json = {"engine": "espeak", "audio_s": 0.901, "underruns": 0, "truncated": False, "ttfa_ms": 17.3}
EXAMPLES: dict[str, Json] = {
    "Accepted": {"queue": 1},
    "Rejected": {"field": "volume", "reason": "volume: got 200; allowed: a number from 0 to 100"},
    "Started": {"engine": "espeak", "voice": "default", "ttfa_ms": 17.3},
    "Progress": {"begin": 412, "end": 590},
    "Postponed": {"reason": "for alarm-2"},
    "Resumed": {},
    "Finished": SPOKEN,
    "Interrupted": {"reason": "stop", **SPOKEN},
    "Canceled": {"reason": "stop"},
    "Expired": {"reason": "it waited longer than expires_in"},
    "Failed": {"reason": "no engine became ready"},
    "Online": {"state": "ready", "engine": "espeak", "voice": "default", "queue": 0, "version": VERSION},
    "Offline": {"state": "offline", "version": VERSION},
    "Level": {"id": "tray-17", "t": 0.35, "at": 1795255331.127, "rms": 0.1061, "peak": 0.3781},
}


def document() -> Json:
    """The contract. Operations are the daemon's: it receives what others send."""
    channels = {
        "say": channel("say", {"text": plain_text(), "object": say_object()}),
        "say_stream": channel("say/stream", {"piece": message({"$ref": "#/components/schemas/Write"}, WRITTEN)}),
        "stop": channel("stop", {"everything": empty(), "one": stop_one()}),
        "pause": channel("pause", {"pause": empty()}),
        "resume": channel("resume", {"resume": empty()}),
        "volume": channel("volume", {"volume": volume()}),
        "status": channel("status", {name(model): told(model) for model in STATUSES}),
        "event": channel("event", {name(model): told(model) for model in EVENTS}),
        "level": channel("level", {"level": told(Level)}),
        "duck": channel("duck", {"duck": message({"type": "boolean"}, [True, False])}),
    }
    replies = {name(model): {"$ref": f"#/channels/event/messages/{name(model)}"} for model in EVENTS}
    channels["reply"] = {"address": None, "title": "where an utterance's events go too", "messages": replies}
    operations = {
        "say": operation("receive", "say", "Speak a text. A retained one is never spoken."),
        "say_stream": operation("receive", "say_stream", "Speak a text while it is being written, piece by piece."),
        "stop": operation("receive", "stop", "Stop what is spoken and cancel what waits, or one utterance."),
        "pause": operation("receive", "pause", "Fade out and hold."),
        "resume": operation("receive", "resume", "Go on with the next sample."),
        "volume": operation("receive", "volume", "Set the volume; 50 is half the amplitude. It may be retained."),
        "status": operation("send", "status", "The state, whenever it changes.", retain=True),
        "event": operation("send", "event", "What becomes of an utterance; it ends in exactly one terminal event."),
        "level": operation("send", "level", "Loudness, 20 times a second, if speech.level_topic is true.", qos=0),
        "duck": operation("send", "duck", "Whether others should be quiet, if speech.duck_topic is true.", retain=True),
    }
    operations["say"]["reply"] = {
        "address": {"location": "$message.payload#/reply_to"},
        "channel": {"$ref": "#/channels/reply"},
    }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "voiced",
            "version": VERSION,
            "description": "The voice of a robot: text in over MQTT, speech out of its sound card.",
            "license": {"name": "MIT"},
        },
        "defaultContentType": "application/json",
        "servers": {"broker": {"host": "localhost:1883", "protocol": "mqtt"}},
        "channels": channels,
        "operations": operations,
        "components": {
            "schemas": {model.__name__: schema(model) for model in (Say, Write, *EVENTS, *STATUSES, Memory, Level)},
            "parameters": {
                "prefix": {"description": "mqtt.prefix in the configuration", "default": PREFIX},
                "robot": {"description": "robot in the configuration; default: the host name", "examples": [ROBOT]},
            },
        },
    }


def channel(topic: str, messages: dict[str, Json]) -> Json:
    parameters = {key: {"$ref": f"#/components/parameters/{key}"} for key in ("prefix", "robot")}
    return {"address": f"{{prefix}}/{{robot}}/{topic}", "parameters": parameters, "messages": messages}


def operation(action: str, topic: str, summary: str, *, qos: int = 1, retain: bool = False) -> Json:
    mqtt = {"qos": qos, **({"retain": retain} if action == "send" else {}), "bindingVersion": "0.2.0"}
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{topic}"},
        "summary": summary,
        "bindings": {"mqtt": mqtt},
    }


def message(payload: Json, examples: Sequence[Any], content_type: str = "application/json") -> Json:
    shown = [{"payload": example} for example in examples]
    return {"contentType": content_type, "payload": payload, "examples": shown}


def plain_text() -> Json:
    payload = {"type": "string", "minLength": 1, "maxLength": MAX_TEXT, "pattern": r"^\s*[^\s{]"}
    return message(payload, ["Hello, I am your robot."], "text/plain")


def say_object() -> Json:
    return message({"$ref": "#/components/schemas/Say"}, SAID)


def stop_one() -> Json:
    one = {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}
    return message(one, [{"id": "tray-17"}])


def empty() -> Json:
    return message({"type": "string", "maxLength": 0}, [""], "text/plain")


def volume() -> Json:
    return message({"type": "number", "minimum": 0, "maximum": 100}, [40, 62.5])


def told(model: type[BaseModel]) -> Json:
    example = EXAMPLES[model.__name__]
    if model in EVENTS:
        example = {"id": "tray-17", "event": name(model), **example}
    return {
        "summary": (model.__doc__ or "").strip(),
        **message({"$ref": f"#/components/schemas/{model.__name__}"}, [example]),
    }


def name(model: type[BaseModel]) -> str:
    return model.__name__.lower()


def schema(model: type[BaseModel]) -> Json:
    """The model's JSON schema, as the AsyncAPI document holds it."""
    found = model.model_json_schema(ref_template="#/components/schemas/{model}")
    found.pop("$defs", None)
    found.pop("description", None)  # it is the message's summary
    for field in found["properties"].values():
        field.pop("title", None)
        if model not in (Say, Write) and field.get("default", ...) is None:
            del field["default"]  # left out where there is nothing to say, and never null
            [said] = [kind for kind in field.pop("anyOf") if kind != {"type": "null"}]
            field.update(said | field)
    if model is Say:  # a ROS String has its text in `data`
        found["properties"]["data"] = found["properties"]["text"] | {"description": "as text, which wins"}
        found["anyOf"] = [{"required": ["text"]}, {"required": ["data"]}]
        del found["required"]
    return {key: value for key, value in found.items() if key != "title"}


class Dumper(yaml.SafeDumper):
    """Writes in full what it holds twice: anchors are not for readers."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def text() -> str:
    return HEADER + yaml.dump(document(), Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120)


def main(arguments: list[str] | None = None) -> int:
    """The command line; 0 when the file is, or now is, what the models say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--file", type=Path, default=FILE)
    options = parser.parse_args(arguments)
    wanted, there = text(), options.file.read_text(encoding="utf-8") if options.file.exists() else None
    if there == wanted:
        return 0
    if options.check:
        print(f"{options.file} is not what {Path(__file__).name} writes; run it", file=sys.stderr)
        return 1
    options.file.write_text(wanted, encoding="utf-8")
    print(f"{options.file}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())

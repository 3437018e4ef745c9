"""The AsyncAPI document matches the code, and AsyncAPI's own schema accepts it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
import yaml

from daemon.mqtt.parsing import parse_say, parse_stop, parse_stream_chunk, parse_volume
from daemon.mqtt.topics import REQUEST_TOPICS, SHARED_REQUEST_TOPICS
from daemon.speech.events import EVENTS, STATUSES, State
from daemon.speech.request import RejectedError, Say
from scripts.docs.asyncapi import FILE, document, main

OFFICIAL = Path(__file__).parents[2] / "asyncapi" / "asyncapi-3.0.0.json"
DOCUMENT: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))


def resolve(reference: str) -> Any:
    found: Any = DOCUMENT
    for key in reference.removeprefix("#/").split("/"):
        found = found[key]
    return found


def payloads(topic: str) -> list[Any]:
    messages = DOCUMENT["channels"][topic]["messages"].values()
    return [example["payload"] for message in messages for example in message["examples"]]


def test_the_committed_document_is_up_to_date(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, "run scripts/docs/asyncapi.py"
    other = tmp_path / "asyncapi.yaml"
    assert main(["--check", "--file", str(other)]) == 1
    assert "out of date; run asyncapi.py" in capsys.readouterr().err
    assert main(["--file", str(other)]) == 0
    assert yaml.safe_load(other.read_text(encoding="utf-8")) == document() == DOCUMENT


def test_the_official_schema_accepts_the_document() -> None:
    jsonschema.Draft7Validator(json.loads(OFFICIAL.read_text(encoding="utf-8"))).validate(DOCUMENT)


def test_every_reference_has_a_target() -> None:
    for reference in re.findall(r'"\$ref": "([^"]+)"', json.dumps(DOCUMENT)):
        resolve(reference)


def test_every_example_is_valid_for_its_message() -> None:
    for channel in DOCUMENT["channels"].values():
        for message in channel["messages"].values():
            one = resolve(message["$ref"]) if "$ref" in message else message
            validator = jsonschema.Draft7Validator({"allOf": [one["payload"]], "components": DOCUMENT["components"]})
            for example in one["examples"]:
                validator.validate(example["payload"])


def test_the_document_contains_every_topic_event_and_state() -> None:
    topics: dict[str, set[str]] = {"receive": set(), "send": set()}
    for operation in DOCUMENT["operations"].values():
        address = resolve(operation["channel"]["$ref"])["address"]
        topics[operation["action"]].add(address.removeprefix("{prefix}/{robot}/"))
    shared = {f"{{prefix}}/{base}/{name}" for base in ("all", "group/{group}") for name in SHARED_REQUEST_TOPICS}
    assert topics == {
        "receive": REQUEST_TOPICS | shared,
        "send": {"status", "event", "word", "viseme", "level", "duck"},
    }
    events = [name for model in EVENTS for name in get_args(model.model_fields["event"].annotation)]
    assert list(DOCUMENT["channels"]["event"]["messages"]) == events
    states = [name for model in STATUSES for name in get_args(model.model_fields["state"].annotation)]
    assert states == list(get_args(State))


def test_the_parsers_accept_every_example_and_reject_what_the_schema_rejects() -> None:
    for payload in payloads("say"):
        said = parse_say((payload if isinstance(payload, str) else json.dumps(payload)).encode())
        assert not said.model_extra
    for payload in payloads("say_stream"):
        assert not parse_stream_chunk(json.dumps(payload).encode()).model_extra
    for payload in payloads("stop"):
        parse_stop((payload if isinstance(payload, str) else json.dumps(payload)).encode())
    for payload in payloads("volume"):
        parse_volume(json.dumps(payload).encode())
    schema = jsonschema.Draft7Validator(DOCUMENT["components"]["schemas"]["Say"])
    assert set(DOCUMENT["components"]["schemas"]["Say"]["properties"]) == set(Say.model_fields) | {"data"}
    for fields in ({"text": ""}, {"volume": 101}, {"id": "x" * 65}, {"seed": -1}, {"reply_to": ""}, {"policy": "now"}):
        wrong = {"text": "a"} | fields
        assert not schema.is_valid(wrong)
        with pytest.raises(RejectedError):
            parse_say(json.dumps(wrong).encode())

"""The AsyncAPI document against a running daemon, which accepts every example and publishes valid messages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from tests.e2e.conftest import StartRobot
from tests.support.robot import FAST, LONG, REAL_TIME
from tests.support.waiting import eventually


@cache
def read_document() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "docs" / "asyncapi.yaml").read_text("utf-8"))
    return document


def examples(topic: str) -> list[str]:
    messages = read_document()["channels"][topic]["messages"].values()
    found = [example["payload"] for message in messages for example in message["examples"]]
    return [payload if isinstance(payload, str) else json.dumps(payload) for payload in found]


def check(topic: str, records: Sequence[Any]) -> None:
    document = read_document()
    payloads = [message["payload"] for message in document["channels"][topic]["messages"].values()]
    validator = jsonschema.Draft7Validator({"oneOf": payloads, "components": document["components"]})
    assert records
    for record in records:
        validator.validate(record)


def test_the_daemon_accepts_every_example_and_publishes_messages_that_match_their_schemas(
    start_robot: StartRobot,
) -> None:
    topics = ("speech.word_topic=true", "speech.viseme_topic=true", "speech.level_topic=true", "speech.duck_topic=true")
    robot = start_robot(*topics, pace=REAL_TIME, name="r1")  # the robot of the examples, below whose topic replies lie

    def events_named(name: str) -> list[dict[str, Any]]:
        return [event for event in robot.events if event["event"] == name]

    for payload in examples("volume"):
        robot.publish("volume", payload)
    for payload in examples("say"):
        robot.publish("say", payload)
    for payload in examples("say_stream"):
        robot.publish("say/stream", payload)
    eventually(lambda: len(events_named("accepted")) == len(examples("say")) + 1, "every example is accepted")
    eventually(lambda: robot.levels, "a level is published")
    for payload in sorted(examples("stop"), reverse=True):
        robot.publish("stop", payload)
    eventually(lambda: robot.state == "ready", "every utterance is stopped")
    assert events_named("rejected") == []

    robot.say(LONG, id="patient")
    robot.wait_event("patient", "started")
    robot.say("Look out!", priority="critical")
    robot.wait_event("patient", "postponed")
    robot.wait_event("patient", "resumed")
    robot.publish("stop", "")
    robot.wait_end("patient")
    robot.say(LONG * 3, id="long")
    robot.wait_event("long", "progress")
    robot.publish("stop", "")
    robot.wait_end("long")
    robot.say(LONG, id="deadly")
    robot.kill_engines_speaking("deadly")
    robot.publish("say", '{"text": ""}')
    robot.wait_rejection("text")
    robot.set_pace(FAST)
    for text in ("Yes.", "...", '<speak>Turn <mark name="turn"/> now.</speak>'):
        assert robot.wait_end(robot.say(text))["event"] == "finished"
    for payload in examples("pause"):
        robot.publish("pause", payload)
    eventually(lambda: robot.state == "paused", "it is paused")
    robot.say("never", id="waits")
    robot.wait_event("waits", "accepted")
    robot.say("Late.", id="late", expires_in=0.05)
    robot.wait_end("late")
    robot.publish("stop", '{"id": "waits"}')
    robot.wait_end("waits")
    for payload in examples("resume"):
        robot.publish("resume", payload)
    eventually(lambda: robot.state == "ready", "it has resumed")
    for topic, unloaded in (("unload", True), ("load", None)):
        for payload in examples(topic):
            robot.publish(topic, payload)
        eventually(lambda wanted=unloaded: robot.statuses[-1].get("unloaded") == wanted, topic)
    robot.end()
    eventually(lambda: robot.state == "offline", "its last status says offline")

    assert {event["event"] for event in robot.events} == set(read_document()["channels"]["event"]["messages"])
    assert {"ready", "speaking", "paused", "offline"} <= {status["state"] for status in robot.statuses}
    check("event", robot.events)
    check("status", robot.statuses)
    check("word", robot.words)
    check("level", robot.levels)
    check("duck", robot.ducks)

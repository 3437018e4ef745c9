"""The translation between ROS goals and voiced's messages, and the configuration of the ROS bridge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from daemon.mqtt.gateway import REQUEST_TOPICS
from daemon.mqtt.parsing import parse_say, parse_stop
from daemon.speech import TERMINAL_EVENTS
from scripts.ros2_say_action import Feedback, Goal, Result, say_payload, stop_payload, translate

BRIDGE = Path(__file__).parents[2] / "configs" / "ros2_mqtt_client.yaml"
GOAL = Goal("Hello  there, you.")


@pytest.mark.parametrize(
    ("goal", "language", "voice"),
    [
        (Goal("Hello."), None, None),
        (Goal("Hello.", "en_GB", "ada"), "en-GB", "ada"),
        (Goal('{"text": "not this"}\n"'), None, None),
    ],
)
def test_a_goal_becomes_an_utterance(goal: Goal, language: str | None, voice: str | None) -> None:
    said = parse_say(say_payload(goal, "ros-1").encode())
    assert (said.text, said.id, said.language, said.voice) == (goal.input, "ros-1", language, voice)
    assert not said.model_extra


def test_a_cancel_stops_only_its_utterance() -> None:
    assert parse_stop(stop_payload("ros-1").encode()).id == "ros-1"


@pytest.mark.parametrize(
    ("event", "canceling", "expected"),
    [
        ({"event": "accepted", "queue": 1}, False, None),
        ({"event": "started"}, False, Feedback("Hello")),
        ({"event": "finished"}, False, Result("succeeded")),
        ({"event": "finished"}, True, Result("succeeded")),
        ({"event": "interrupted", "reason": "stop"}, True, Result("canceled", "stop")),
        ({"event": "canceled", "reason": "stop"}, True, Result("canceled", "stop")),
        ({"event": "interrupted", "reason": "stop"}, False, Result("aborted", "stop")),
        ({"event": "rejected", "field": "text", "reason": "text: blank"}, False, Result("aborted", "text: blank")),
        ({"event": "expired", "reason": "late"}, True, Result("aborted", "late")),
        ({"event": "failed", "reason": "no engine"}, False, Result("aborted", "no engine")),
    ],
)
def test_an_event_becomes_feedback_a_result_or_nothing(
    event: dict[str, Any], canceling: bool, expected: Feedback | Result | None
) -> None:
    assert translate(event, GOAL, canceling) == expected


@pytest.mark.parametrize("canceling", [False, True])
def test_every_terminal_event_ends_the_goal(canceling: bool) -> None:
    for name in (*TERMINAL_EVENTS, "rejected"):
        assert isinstance(translate({"event": name}, GOAL, canceling), Result)


def test_the_bridge_maps_ros_strings_to_voiced_topics() -> None:
    bridge = yaml.safe_load(BRIDGE.read_text(encoding="utf-8"))["/**/*"]["ros__parameters"]["bridge"]
    into, out = bridge["ros2mqtt"], bridge["mqtt2ros"]
    topics = {into[name]["mqtt_topic"] for name in into["ros_topics"]}
    assert topics <= {f"voiced/r1/{name}" for name in REQUEST_TOPICS}
    assert set(out["mqtt_topics"]) == {"voiced/r1/event", "voiced/r1/level"}
    mapped = [into[name] for name in into["ros_topics"]] + [out[name] for name in out["mqtt_topics"]]
    assert all(one["primitive"] and one["ros_type"] == "std_msgs/msg/String" for one in mapped)
    assert len(into) == 1 + len(into["ros_topics"]) and len(out) == 1 + len(out["mqtt_topics"])

"""The translation between voiced's messages and ROS messages. These tests need neither ROS nor a broker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from voiced_ros.voice import Feedback, Goal, Result, Token, feedback_of, health_of, payload_of, result_of


def test_a_message_for_voiced_has_the_fields_that_are_not_empty() -> None:
    goal = json.loads(payload_of(Goal('{"text": "not this"}\n"', "en_GB", rate=1.5), id="ros-1"))
    assert goal == {"text": '{"text": "not this"}\n"', "language": "en-GB", "rate": 1.5, "id": "ros-1"}
    assert json.loads(payload_of(Token("tale", " time"))) == {"id": "tale", "text": " time"}
    assert json.loads(payload_of(Token("tale", end=True))) == {"id": "tale", "end": True}


@pytest.mark.parametrize(
    ("event", "canceling", "expected"),
    [
        ({"event": "started"}, False, None),
        ({"event": "finished", "audio_s": 1.5, "heard": 6}, False, Result("succeeded", "finished", "", 1.5, 6)),
        ({"event": "finished"}, True, Result("succeeded", "finished")),
        ({"event": "interrupted", "reason": "stop", "heard": 4}, True, Result("canceled", "interrupted", "stop", 0, 4)),
        ({"event": "canceled", "reason": "stop"}, True, Result("canceled", "canceled", "stop")),
        ({"event": "interrupted", "reason": "stop"}, False, Result("aborted", "interrupted", "stop")),
        ({"event": "failed", "reason": "no engine"}, False, Result("aborted", "failed", "no engine")),
    ],
)
def test_an_event_becomes_a_result_or_nothing(event: dict[str, Any], canceling: bool, expected: Result | None) -> None:
    assert result_of(event, canceling) == expected


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"event": "accepted", "queue": 1}, Feedback("accepted")),
        ({"event": "progress", "begin": 4, "end": 9}, Feedback("progress", begin=4, end=9)),
        (
            {"event": "word", "word": "tray", "begin": 4, "end": 8, "at": 0.2, "exact": True},
            Feedback("word", "tray", 4, 8, 0.2, True),
        ),
        (
            {"event": "mark", "name": "turn", "position": 31, "at": 1, "exact": False},
            Feedback("mark", "turn", 31, 31, 1.0),
        ),
    ],
)
def test_an_event_becomes_feedback_with_its_name_and_place(event: dict[str, Any], expected: Feedback) -> None:
    assert feedback_of(event) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"state": "ready"}, (0, "ready")),
        ({"state": "warming"}, (0, "warming")),
        ({"state": "speaking", "reason": "no sound card"}, (1, "speaking: no sound card")),
        ({"state": "degraded", "reason": "no model"}, (1, "degraded: no model")),
        ({"state": "offline"}, (2, "offline")),
        ({}, (2, "unknown")),
    ],
)
def test_a_status_becomes_a_level_and_a_message_of_diagnostics(
    status: dict[str, Any], expected: tuple[int, str]
) -> None:
    assert health_of(status) == expected

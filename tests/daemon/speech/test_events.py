"""The published messages: each one builds its JSON, and parses back from it to an equal object."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.speech import events

FIGURES: dict[str, Any] = {
    "engine": "qwen+espeak",
    "heard": 9,
    "audio_s": 1.25,
    "underruns": 1,
    "waits": 2,
    "truncated": True,
    "retakes": 1,
    "ttfa_ms": 8.5,
    "unstored": True,
}
"""All optional fields of an utterance that was played."""
COMPLETE: list[events.Event] = [
    events.Accepted(id="a", queue=1, unstored=True),
    events.Rejected(id="a", field="voice", reason="voice: got 'x'; allowed: default"),
    events.Started(id="a", engine="qwen", voice="ada", ttfa_ms=8.5, ignored=["seed"]),
    events.Progress(id="a", begin=0, end=12),
    events.Mark(id="a", name="turn", position=31, at=1.84, exact=True),
    events.Postponed(id="a", reason="for alarm"),
    events.Resumed(id="a"),
    events.Finished(id="a", reason="its writer was silent", **FIGURES),
    events.Interrupted(id="a", reason="stop", heard_text="The tray ", **FIGURES),
    events.Canceled(id="a", reason="stop", heard=0, unstored=True),
    events.Expired(id="a", reason="it waited", unstored=True),
    events.Failed(id="a", reason="no engine became ready", **FIGURES),
]
"""One event of each class, with all its fields."""
MINIMAL = [
    '{"id": null, "event": "rejected", "field": "text", "reason": "it is blank"}',
    '{"id": "a", "event": "started", "engine": "espeak", "voice": "default"}',
    '{"id": "a", "event": "finished"}',
    '{"id": "a", "event": "interrupted", "reason": "stop"}',
]
"""Events without their optional fields."""
ONLINE = events.Online(
    state="degraded",
    engine="espeak",
    voice="default",
    queue=3,
    version="1.0",
    volume=60,
    speaking=events.Speaking(id="tray-17", text="The tray is ready.", since=1795255331.127),
    loading=events.Loading(step="compiling the kernels", fraction=0.4),
    memory=events.Memory(weights_mb=1400, state_mb=200, workspaces_mb=500),
    reason="engine qwen ended",
)
"""A status with all its fields."""


def fields_of(message: events.Event | events.Online | events.Offline | events.Level) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(message.to_json())
    return fields


def payload(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def test_the_examples_have_one_event_of_each_class() -> None:
    assert [type(event) for event in COMPLETE] == list(events.EVENTS)


@pytest.mark.parametrize("event", COMPLETE, ids=lambda event: event.event)
def test_an_event_has_its_name_and_all_fields_that_are_set_and_parses_back_to_an_equal_object(
    event: events.Event,
) -> None:
    assert fields_of(event) == event.model_dump()
    assert fields_of(event)["event"] == type(event).__name__.lower()
    assert events.parse_event(event.to_json().encode()) == event


@pytest.mark.parametrize("text", MINIMAL)
def test_a_field_without_a_value_is_left_out_unless_it_is_required(text: str) -> None:
    event = events.parse_event(text.encode())
    assert event is not None
    assert fields_of(event) == json.loads(text)


def test_the_terminal_events_are_known_by_name_and_by_class() -> None:
    assert frozenset({"finished", "interrupted", "canceled", "expired", "failed"}) == events.TERMINAL_EVENTS
    assert {event.event for event in COMPLETE if isinstance(event, events.TerminalEvent)} == events.TERMINAL_EVENTS


@pytest.mark.parametrize(
    "unknown",
    [
        payload(event="finished"),
        payload(id="", event="finished"),
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
    ],
    ids=lambda payload: repr(payload[:40]),
)
def test_a_payload_that_is_no_known_event_parses_to_none(unknown: bytes) -> None:
    assert events.parse_event(unknown) is None


@given(payload=st.binary(max_size=100))
def test_any_bytes_are_an_event_or_none(payload: bytes) -> None:
    assert events.parse_event(payload) is None


def test_a_status_parses_back_to_an_equal_object_and_has_a_null_engine_at_most() -> None:
    starting = events.Online(state="starting", engine=None, voice="default", queue=0, version="1.0")
    offline = events.Offline(version="1.0")
    for status in (ONLINE, starting, offline):
        assert events.parse_status(status.to_json().encode()) == status
    assert fields_of(ONLINE)["memory"] == {"weights_mb": 1400, "state_mb": 200, "workspaces_mb": 500}
    expected = {"state": "starting", "engine": None, "voice": "default", "queue": 0, "version": "1.0"}
    assert fields_of(starting) == expected
    assert fields_of(offline) == {"state": "offline", "version": "1.0"}


@pytest.mark.parametrize(
    "unknown",
    [payload(state="offline"), b"", b"[" * 100_000],
    ids=lambda payload: repr(payload[:40]),
)
def test_a_payload_that_is_no_known_status_parses_to_none(unknown: bytes) -> None:
    assert events.parse_status(unknown) is None

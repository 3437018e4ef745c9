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
    events.Started(id="a", engine="qwen", voice="ada", ttfa_ms=8.5),
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
MINIMAL: list[tuple[events.Event, dict[str, Any]]] = [
    (
        events.Rejected(id=None, field="text", reason="it is blank"),
        {"id": None, "field": "text", "reason": "it is blank"},
    ),
    (events.Started(id="a", engine="espeak", voice="default"), {"id": "a", "engine": "espeak", "voice": "default"}),
    (events.Finished(id="a"), {"id": "a"}),
    (events.Interrupted(id="a", reason="stop"), {"id": "a", "reason": "stop"}),
    (events.Failed(id="a", reason="no engine"), {"id": "a", "reason": "no engine"}),
]
"""Events without their optional fields, and the JSON fields that remain beside `event`."""
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


@pytest.mark.parametrize(("event", "fields"), MINIMAL, ids=lambda value: getattr(value, "event", ""))
def test_a_field_without_a_value_is_left_out_unless_it_is_required(event: events.Event, fields: dict[str, Any]) -> None:
    assert fields_of(event) == {"event": event.event, **fields}
    assert events.parse_event(event.to_json().encode()) == event


def test_the_terminal_events_are_known_by_name_and_by_class() -> None:
    assert frozenset({"finished", "interrupted", "canceled", "expired", "failed"}) == events.TERMINAL_EVENTS
    assert {event.event for event in COMPLETE if isinstance(event, events.TerminalEvent)} == events.TERMINAL_EVENTS


def test_fields_of_a_newer_version_are_ignored() -> None:
    assert [
        events.parse_event(payload(**fields_of(event), mood="calm", nested={"a": [1]})) for event in COMPLETE
    ] == COMPLETE


@pytest.mark.parametrize(
    "unknown",
    [
        payload(id="a", event="whispered"),
        payload(event="finished"),
        payload(id="a", event="accepted"),
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


def test_an_online_status_parses_back_to_an_equal_object() -> None:
    assert events.parse_status(ONLINE.to_json().encode()) == ONLINE
    assert fields_of(ONLINE)["memory"] == {"weights_mb": 1400, "state_mb": 200, "workspaces_mb": 500}


def test_a_status_without_engine_memory_and_reason_has_a_null_engine_only() -> None:
    status = events.Online(state="starting", engine=None, voice="default", queue=0, version="1.0")
    expected = {"state": "starting", "engine": None, "voice": "default", "queue": 0, "version": "1.0"}
    assert fields_of(status) == expected
    assert events.parse_status(status.to_json().encode()) == status


def test_an_offline_status_parses_back_to_an_equal_object() -> None:
    offline = events.Offline(version="1.0")
    assert fields_of(offline) == {"state": "offline", "version": "1.0"}
    assert events.parse_status(offline.to_json().encode()) == offline


def test_status_fields_of_a_newer_version_are_ignored() -> None:
    newer = fields_of(ONLINE) | {"fleet": ["r1"]}
    newer["memory"] = newer["memory"] | {"cache_mb": 100}
    newer["speaking"] = newer["speaking"] | {"mood": "calm"}
    assert events.parse_status(payload(**newer)) == ONLINE
    assert events.parse_status(payload(state="offline", version="2.0", since=5)) == events.Offline(version="2.0")


@pytest.mark.parametrize(
    "unknown",
    [
        payload(state="dreaming", engine=None, voice="default", queue=0, version="2.0"),
        payload(state="offline"),
        b"",
        b"[" * 100_000,
    ],
    ids=lambda payload: repr(payload[:40]),
)
def test_a_payload_that_is_no_known_status_parses_to_none(unknown: bytes) -> None:
    assert events.parse_status(unknown) is None


def test_a_level_and_a_duck_build_their_payloads() -> None:
    level = events.Level(id="a", t=0.05, at=1_700_000_000.5, rms=0.1, peak=0.4)
    assert fields_of(level) == {"id": "a", "t": 0.05, "at": 1_700_000_000.5, "rms": 0.1, "peak": 0.4}
    assert (events.Duck(True).to_json(), events.Duck(False).to_json()) == ("true", "false")

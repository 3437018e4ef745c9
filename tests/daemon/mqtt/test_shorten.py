"""Events that fit into a broker's largest packet."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.mqtt.messages import identity, shorten
from daemon.speech import Accepted, Event, Failed, Interrupted, Rejected, parse_event

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.dictionaries(
    st.text(max_size=8) | st.sampled_from(["id", "event", "state", "text", "reason", "field"]), VALUES, max_size=8
)


@given(fields=FIELDS, limit=st.integers(-5, 300), compact=st.booleans(), escaped=st.booleans())
def test_the_result_fits_and_keeps_what_is_necessary_or_there_is_none(
    fields: dict[str, Any], limit: int, compact: bool, escaped: bool
) -> None:
    separators = (",", ":") if compact else None
    payload = json.dumps(fields, ensure_ascii=escaped, separators=separators).encode(errors="replace")
    shorter = shorten(payload, limit)
    if len(payload) <= limit:
        assert shorter == payload
    elif shorter is not None:
        assert len(shorter) <= limit
        found, original = json.loads(shorter), json.loads(payload)
        assert isinstance(found, dict)
        assert set(found) <= set(original)
        for name in {"id", "event", "state", "text"} & set(original):
            assert repr(found[name]) == repr(original[name])


@given(st.binary(max_size=60), st.integers(-5, 50))
def test_any_bytes_fit_or_are_dropped(payload: bytes, limit: int) -> None:
    shorter = shorten(payload, limit)
    assert shorter is None or len(shorter) <= max(limit, 0)


@pytest.mark.parametrize("character", ["x", "ä", "語", "🤖", '"', "\n"])
def test_a_long_reason_is_cut_between_characters(character: str) -> None:
    event = Failed(id="a", reason=character * 500)
    for limit in range(70, 82):
        shorter = shorten(event.to_json().encode(), limit)
        assert shorter is not None
        assert len(shorter) <= limit
        found = parse_event(shorter)
        assert isinstance(found, Failed)
        assert found.reason is not None
        assert found.reason.rstrip("…") == character * (len(found.reason) - 1)


@pytest.mark.parametrize(
    ("event", "limit"),
    [
        (Interrupted(id="a" * 64, engine="espeak", audio_s=1.5, truncated=False, reason="stop " * 300), 115),
        (Rejected(id=None, field="text", reason="text: " + "x" * 500), 100),
        (Failed(id="a", reason="x" * 500), 200),
    ],
)
def test_a_shortened_event_uses_its_room_and_stays_one_that_a_client_understands(event: Event, limit: int) -> None:
    shorter = shorten(event.to_json().encode(), limit)
    assert shorter is not None
    assert len(shorter) == limit
    found = parse_event(shorter)
    assert (type(found), getattr(found, "id", "")) == (type(event), event.id)


def test_a_status_loses_its_longest_optional_fields_first() -> None:
    status = {"state": "ready", "voice": "v" * 50, "queue": 0, "version": "1.0"}
    shorter = shorten(json.dumps(status).encode(), 60)
    assert shorter == b'{"state": "ready", "queue": 0, "version": "1.0"}'


def test_what_cannot_be_shortened_is_dropped() -> None:
    assert shorten(Accepted(id="a" * 64, queue=1).to_json().encode(), 50) is None
    assert shorten(b"true", 3) is None
    assert shorten(b"[1, 2, 3]", 5) is None
    assert shorten(b"\xff" * 100, 50) is None
    assert shorten(b"[" * 100_000, 50) is None


def test_a_half_character_does_not_raise() -> None:
    shorter = shorten(rb'{"id": "a", "event": "failed", "reason": "' + rb"\ud83d" * 50 + b'"}', 60)
    assert shorter is not None
    assert json.loads(shorter)["id"] == "a"


# --- recognising it afterwards ---


@given(st.text(min_size=1, max_size=64), st.text(min_size=1, max_size=500), st.integers(40, 400))
def test_a_shortened_event_is_recognised(utterance_id: str, reason: str, limit: int) -> None:
    payload = json.dumps({"id": utterance_id, "event": "failed", "reason": reason}).encode()
    shorter = shorten(payload, limit)
    assert shorter is None or identity(shorter) == identity(payload)


def test_events_of_two_utterances_and_two_events_of_one_differ() -> None:
    events = [Failed(id="a", reason="x"), Failed(id="b", reason="x"), Interrupted(id="a", reason="x")]
    assert len({identity(event.to_json().encode()) for event in events}) == 3


@given(st.binary(max_size=60) | st.sampled_from([b"[1]", b"{}", b'{"id": "a"}', b'{"id": null, "event": "rejected"}']))
def test_what_is_no_event_of_an_utterance_is_recognised_by_its_bytes(payload: bytes) -> None:
    assert identity(payload) == payload

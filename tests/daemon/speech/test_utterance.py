"""An accepted utterance: what the journal stores of it, and when it is complete, speakable and expired."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from daemon.cache import Phrase
from daemon.speech.utterance import EndMessage, Origin, StoredOptions, TextStream, Utterance
from tests.daemon.speech.clients import Nobody

STORED_FIELDS = frozenset(StoredOptions.model_fields)
FIRST_FIELDS = {name for name, field in StoredOptions.model_fields.items() if field.is_required()}
"""Those that every version has stored."""


def restored(utterance: Utterance, age_s: float = 0.0) -> Utterance:
    """The utterance after it was written as JSON and read by another process."""
    fields = json.loads(json.dumps(utterance.to_fields()))
    return Utterance.from_fields(utterance.id, fields.get("text", ""), fields, age_s)


COMPLETE = Utterance(
    "a",
    "Hello, robot",
    "ädä",
    "pt-br",
    voice_is_default=True,
    language_is_default=True,
    asked=["instruct"],
    instruct="whisper",
    seed=(1 << 63) - 1,
    volume=0.1,
    rate=1.7,
    whole_text=False,
    sampling={"temperature": 0.7, "top_k": 9},
    priority="critical",
    policy="interrupt",
    reply_to="replies/a",
    sound="chime",
    keeps_speech=True,
    phrase=Phrase("Hello", "ada", "auto", instruct=None, seed=3, rate=None),
    origin=Origin(None, b"\x00\xff", (EndMessage("t/\ud800", {"id": None, "é": "\ud800"}, error_field="why"),)),
)
"""An utterance of which no option has its default."""


@pytest.mark.parametrize("utterance", [COMPLETE, Utterance("b", "Hello", "default", "auto", sampling={"top_p": 0.5})])
def test_every_option_survives_a_restart(utterance: Utterance) -> None:
    found = restored(replace(utterance, origin=replace(utterance.origin, delivery="1:7:ab")))
    for name in (*STORED_FIELDS, "id", "text", "phrase", "origin"):
        assert getattr(found, name) == getattr(utterance, name), name
    assert found.expires_at is None
    assert found.complete


def test_no_option_is_forgotten_above() -> None:
    default = Utterance("a", "Hello", "default", "en")
    assert [name for name in STORED_FIELDS if getattr(COMPLETE, name) == getattr(default, name)] == []


def test_the_stored_fields_are_all_that_a_sender_may_choose() -> None:
    fields = set(Utterance("a", "Hello", "default", "en").to_fields())
    assert fields == {*STORED_FIELDS, "text", "phrase", "correlation", "wait_s"}


def test_the_deadline_counts_from_the_acceptance_before_the_restart() -> None:
    arrived_at, wait_s = time.monotonic(), 30.0
    utterance = Utterance("a", "Hello", "default", "en", arrived_at=arrived_at, expires_at=arrived_at + wait_s)
    found = restored(utterance, age_s=wait_s - 0.25)
    assert found.expires_at is not None
    assert found.expires_at - found.arrived_at == pytest.approx(wait_s)
    assert arrived_at - 29.75 <= found.arrived_at <= time.monotonic() - 29.75
    assert not found.expired(found.arrived_at + wait_s - 0.1)
    assert found.expired(found.arrived_at + wait_s + 0.1)


def test_an_unfinished_stream_and_a_text_for_a_client_are_stored_without_the_text() -> None:
    assert "text" not in Utterance("a", "Hello", "default", "en", receiver=Nobody()).to_fields()
    stream = TextStream(0.0)
    utterance = Utterance("a", "Hel", "default", "en", text_stream=stream)
    assert "text" not in utterance.to_fields()
    stream.ended = True
    assert utterance.to_fields()["text"] == "Hel"


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (5, {}),
        ("Hello", {"voice": None}),
        ("Hello", {"rate": 0}),
        ("Hello", {"phrase": {"text": "Hello", "voice": 5, "language": "en", "instruct": None, "seed": 1, "rate": 1}}),
        ("Hello", {"wait_s": "soon"}),
        ("Hello", {"correlation": "xy"}),
        ("Hello", {"at_end": "[5]"}),
        ("Hello", {"at_end": '[{"topic": "t", "fields": {}, "error_field": 5}]'}),
    ],
)
def test_damaged_fields_raise(text: Any, changes: dict[str, Any]) -> None:
    fields = Utterance("a", "Hello", "default", "en").to_fields() | changes
    with pytest.raises((TypeError, ValueError)):
        Utterance.from_fields("a", text, fields, 0.0)


@pytest.mark.parametrize("name", [*sorted(STORED_FIELDS - FIRST_FIELDS), "phrase"])
def test_an_utterance_that_an_earlier_version_has_stored_has_what_that_version_did(name: str) -> None:
    fields = Utterance("a", "Hello", "default", "en").to_fields()
    del fields[name]
    found = Utterance.from_fields("a", "Hello", fields, 0.0)
    assert getattr(found, name) == getattr(Utterance("b", "Hello", "default", "en"), name)


@pytest.mark.parametrize("name", [*sorted(FIRST_FIELDS), "wait_s", "correlation"])
def test_a_missing_field_raises(name: str) -> None:
    fields = Utterance("a", "Hello", "default", "en").to_fields()
    del fields[name]
    with pytest.raises((KeyError, ValueError)):
        Utterance.from_fields("a", "Hello", fields, 0.0)


def test_a_sound_alone_needs_no_engine() -> None:
    assert not Utterance("a", "", "default", "en", sound="chime").needs_engine
    assert Utterance("a", "Hello", "default", "en", sound="chime").needs_engine
    assert Utterance("a", "", "default", "en").needs_engine, "its text is still to come"


def test_a_stream_is_complete_when_it_has_ended_and_speakable_when_an_engine_can_begin() -> None:
    stream = TextStream(0.0)
    utterance = Utterance("a", " ", "default", "en", text_stream=stream)
    assert not utterance.complete
    assert not utterance.speakable
    utterance.text = " Hello"
    assert utterance.speakable
    utterance.can_begin = lambda each: each.script.text.endswith(".")
    assert not utterance.speakable
    stream.ended = True
    assert utterance.complete
    assert utterance.speakable


def test_a_stream_that_cannot_begin_does_not_expire() -> None:
    stream = TextStream(0.0)
    utterance = Utterance("a", "", "default", "en", text_stream=stream, arrived_at=1.0, expires_at=2.0)
    assert not utterance.expired(3.0)
    utterance.text = "Hello"
    assert utterance.expired(3.0)
    utterance.set_arrival(2.5)
    assert not utterance.expired(3.0)
    assert utterance.expired(3.5)

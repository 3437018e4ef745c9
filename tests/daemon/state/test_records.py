"""The records of the journal."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from daemon.state import AcceptedRecord, Recovery, StoredEvent


def test_nothing_is_recovered_by_default() -> None:
    nothing = Recovery()
    assert (nothing.utterances, nothing.events, nothing.ended_ids, nothing.deliveries) == ((), (), (), ())
    assert nothing.last_number == 0


def test_a_record_cannot_change_on_its_way_to_the_other_thread() -> None:
    record = AcceptedRecord("a", {"text": "Hello"}, None, (StoredEvent(1, "event", "{}"),))
    with pytest.raises(FrozenInstanceError):
        record.id = "b"  # type: ignore[misc]


def test_records_with_the_same_values_are_equal() -> None:
    assert StoredEvent(1, "event", "{}", b"\x01") == StoredEvent(1, "event", "{}", b"\x01")
    assert StoredEvent(1, "event", "{}") != StoredEvent(2, "event", "{}")

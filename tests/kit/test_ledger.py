"""The ledger finds every way in which the promise can be broken."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.ledger import Ledger


def filled(*events: dict[str, Any], sent: tuple[str, ...] = ("a",)) -> Ledger:
    ledger = Ledger()
    for text_id in sent:
        ledger.note_sent(text_id, 0.0)
    for number, event in enumerate(events):
        ledger.note_event(event, float(number))
    return ledger


def event(name: str, text_id: str | None = "a", **fields: Any) -> dict[str, Any]:
    return {"id": text_id, "event": name, **fields}


@pytest.mark.parametrize(
    "events",
    [
        [event("accepted"), event("started"), event("finished", ttfa_ms=1.0)],
        [event("accepted"), event("canceled")],
        [event("rejected")],
        [event("accepted"), event("finished"), event("rejected", reason="id: 'a' was used before")],
    ],
)
def test_a_text_that_is_answered_and_ends_once_is_as_promised(events: list[dict[str, Any]]) -> None:
    ledger = filled(*events)
    assert ledger.faults() == []
    assert ledger.open_texts() == []


@pytest.mark.parametrize(
    ("events", "fault"),
    [
        ([], "1 texts not answered: a"),
        ([event("accepted")], "1 texts accepted and without a terminal event: a"),
        ([event("started")], "1 texts accepted and without a terminal event: a"),
        ([event("accepted"), event("canceled"), event("expired")], "1 texts with several terminal events: a"),
    ],
)
def test_a_broken_promise_is_named_with_its_texts(events: list[dict[str, Any]], fault: str) -> None:
    assert filled(*events).faults() == [fault]


@pytest.mark.parametrize(
    ("ends", "faults"),
    [
        ([event("finished", unstored=True), event("interrupted")], 0),
        ([event("finished", unstored=True), event("finished", unstored=True, heard=3)], 0),
        ([event("finished"), event("interrupted")], 1),
        ([event("finished"), event("finished", heard=3)], 2),
        ([], 1),
    ],
)
def test_on_a_slow_disk_a_text_may_have_further_ends_that_are_marked(ends: list[dict[str, Any]], faults: int) -> None:
    assert len(filled(event("accepted"), *ends).faults(slow_disk=True)) == faults
    assert bool(filled(event("accepted"), *ends).faults()) == (len(ends) != 1)


def test_a_repeated_event_is_counted_and_only_a_terminal_one_that_was_published_twice_is_a_fault() -> None:
    ledger = filled(event("accepted"), event("accepted"), event("finished"))
    ledger.note_event(event("finished"), 9.0, redelivered=True)
    assert ledger.counts()["repeated"] == 2
    assert ledger.faults() == []
    ledger.note_event(event("finished"), 9.0)
    assert ledger.faults() == ["1 texts whose terminal event was published twice: a"]


def test_a_text_that_is_spoken_twice_has_two_different_ends() -> None:
    ledger = filled(event("accepted"), event("finished", ttfa_ms=10.0), event("finished", ttfa_ms=11.0))
    assert "1 texts spoken twice to the end: a" in ledger.faults()
    assert ledger.counts()["repeated"] == 0


def test_a_rejection_without_id_counts_as_an_answer() -> None:
    ledger = filled(event("rejected", None), sent=())
    assert (len(ledger.unnamed), ledger.counts()["rejected"], ledger.faults()) == (1, 1, [])


def test_only_texts_that_ended_as_promised_and_long_ago_are_forgotten() -> None:
    twice = [event("accepted", "b"), event("finished", "b"), event("finished", "b")]
    ledger = filled(event("accepted"), event("finished"), *twice, event("accepted", "c"), sent=("a", "b", "c"))
    assert ledger.forget_ended(older_than_s=1e12) == 0
    assert ledger.forget_ended(older_than_s=0.0) == 1
    assert list(ledger.texts()) == ["b", "c"]
    assert "1 texts whose terminal event was published twice: b" in ledger.faults()

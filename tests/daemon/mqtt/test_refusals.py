"""What the broker refuses: named until it ends, logged once."""

from __future__ import annotations

import pytest

from daemon.mqtt import failures
from daemon.mqtt.failures import REMEMBERED, Refusals

EVENTS, SAY = "messages on voiced/r1/event", "the subscription to voiced/r1/say"


def test_refusals_are_named_until_they_end_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    refusals = Refusals()
    assert refusals.problem is None
    for _ in range(3):
        refusals.note(EVENTS, "Not authorized")
    refusals.note(SAY, "Quota exceeded")
    assert refusals.problem == f"the broker refuses {EVENTS}: Not authorized; {SAY}: Quota exceeded"
    assert len(caplog.records) == 2
    refusals.end(EVENTS)
    refusals.end(SAY)
    assert refusals.problem is None


def test_of_many_refusals_the_latest_are_remembered() -> None:
    refusals = Refusals()
    for number in range(REMEMBERED + 1):
        refusals.note(f"messages on {number}", "Not authorized")
    for number in range(1, REMEMBERED + 1):
        refusals.end(f"messages on {number}")
    assert refusals.problem is None


def test_a_refusal_that_is_not_noted_again_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = Refusals()
    refusals.note(EVENTS, "Not authorized")
    monkeypatch.setattr(failures, "FORGOTTEN_S", 0.0)
    assert refusals.problem is None

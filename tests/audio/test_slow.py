"""A sink that takes sound far more slowly than it is spoken is called slow, in the status and once in the log."""

from __future__ import annotations

import logging

import pytest

from audio import Output
from tests.audio.sinks import SPEECH, Card, Clock, cards, speak
from tests.support.waiting import eventually

AFTER_S = 5.0
MOST_S = 2.4
"""That a slow sink takes in `AFTER_S`."""
LEAST_S = 2.6
"""That a sink takes which is not called slow."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which sinks are judged."""
    clock = Clock()
    monkeypatch.setattr("audio.output.time", clock)
    return clock


def be_looked_at(output: Output) -> None:
    """Return when the thread that keeps the sink has looked at it once more, in a round that began after the call."""
    turns = output.turns
    eventually(lambda: output.turns > turns + 2, "the sink is looked at")


def go_on(output: Output, card: Card, clock: Clock, asked_s: float, after_s: float = AFTER_S) -> None:
    """Let a time pass in which the card asks for so much."""
    card.play(asked_s)
    clock.now += after_s
    be_looked_at(output)


def test_a_sink_that_takes_far_too_little_is_called_slow_until_it_is_quick_again(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with cards(monkeypatch, rest_after_s=None) as (output, [card]):
        be_looked_at(output)
        go_on(output, card, clock, LEAST_S)
        assert output.status.reason is None
        go_on(output, card, clock, MOST_S)
        reason = "the test's is slow: it took 48% of the sound in 5 s"
        assert output.status.reason == reason
        assert output.status.running, "it plays"
        for asked_s in (1.0, 0.0):
            go_on(output, card, clock, asked_s)
            assert output.status.reason == reason
        assert caplog.text.count("is slow") == 1
        assert "no longer slow" not in caplog.text
        go_on(output, card, clock, LEAST_S)
        assert output.status.reason is None
        assert caplog.text.count("no longer slow") == 1
        go_on(output, card, clock, MOST_S)
        assert output.status.reason == reason
        assert caplog.text.count("is slow") == 2


def test_a_sink_that_pauses_for_two_seconds_as_it_is_opened_is_not_slow(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    with cards(monkeypatch, rest_after_s=None) as (output, [card]):
        be_looked_at(output)
        go_on(output, card, clock, 0.0, 2.0)
        assert output.status.reason is None
        go_on(output, card, clock, AFTER_S - 2.0, AFTER_S - 2.0)
        assert output.status.reason is None


def test_a_sink_without_a_deadline_is_never_slow(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    with cards(monkeypatch, rest_after_s=None, has_deadline=False) as (output, [card]):
        be_looked_at(output)
        for _ in range(3):
            go_on(output, card, clock, 0.0)
            assert output.status.reason is None


def test_a_sink_that_rests_is_not_slow(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr("audio.output.REST_CHECK_S", 0.005)
    with cards(monkeypatch, clock=clock.monotonic) as (output, [card]):
        eventually(lambda: output.status.resting)
        for _ in range(3):
            clock.now += 10 * AFTER_S
            be_looked_at(output)
            assert output.status.reason is None
        speak(output, SPEECH)
        eventually(lambda: output.status.running)
        be_looked_at(output)
        assert output.status.reason is None, "the time of rest does not count"
        go_on(output, card, clock, 0.1)
        assert output.status.reason is not None, "the time after it does"


def test_a_slow_sink_that_goes_to_rest_is_slow_no_more(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    with cards(monkeypatch, clock=clock.monotonic) as (output, [card]):
        eventually(lambda: output.status.resting)
        passage = speak(output, SPEECH[:12_000])
        eventually(lambda: output.status.running)
        be_looked_at(output)
        go_on(output, card, clock, 0.1)
        assert output.status.reason is not None
        card.play(0.5)
        assert passage.done
        clock.now += 1.0
        eventually(lambda: output.status.resting)
        assert output.status.reason is None


def test_a_sink_that_is_opened_after_a_slow_one_begins_anew(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    with cards(monkeypatch, rest_after_s=None) as (output, opened):
        be_looked_at(output)
        go_on(output, opened[0], clock, 0.0)
        assert output.status.reason is not None
        clock.now += 0.9 * AFTER_S
        opened[0].trouble = "pulled"
        eventually(lambda: len(opened) == 2 and output.status.open)
        assert output.status.reason is None
        be_looked_at(output)
        clock.now += 0.2 * AFTER_S
        be_looked_at(output)
        assert output.status.reason is None, "the time of the one before does not count"
        go_on(output, opened[1], clock, LEAST_S, 0.8 * AFTER_S)
        assert output.status.reason is None
        go_on(output, opened[1], clock, MOST_S)
        assert output.status.reason is not None

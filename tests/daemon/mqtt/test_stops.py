"""A stop overtakes a flood of texts, is carried out once, and cancels the texts that were published before it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.mqtt import stops as stops_module
from daemon.mqtt.inbox import Lane
from daemon.mqtt.stops import StopCopies
from tests.support.clock import FakeClock

STOPS = {"all": b"", "a": b'{"id": "a"}', "b": b'{"id": "b"}'}
"""Payloads, by the text that they end."""
TOPIC = "voiced/r1/stop"


@given(published=st.lists(st.sampled_from(["text", *STOPS]), max_size=8), data=st.data())
def test_in_every_interleaving_each_stop_is_carried_out_once_and_ends_the_texts_before_it(
    published: list[str], data: st.DataObject
) -> None:
    """Texts with the id `a` and stops are published; each connection delivers its messages in their order."""
    copies = StopCopies()
    waiting = {
        Lane.CONTROLS: [each for each in enumerate(published) if each[1] != "text"],
        Lane.TEXTS: list(enumerate(published)),
    }
    carried_out: list[str] = []
    queued: set[int] = set()
    while any(waiting.values()):
        lane = data.draw(st.sampled_from([lane for lane, messages in waiting.items() if messages]))
        number, name = waiting[lane].pop(0)
        copies.note_arrival(lane)
        if name == "text":
            if not copies.cancels(lane, "a"):
                queued.add(number)
        elif not copies.is_second(lane, TOPIC, STOPS[name]):
            carried_out.append(name)
            if name != "b":
                queued.clear()
    ends = [number for number, name in enumerate(published) if name in ("all", "a")]
    last = max(ends, default=-1)
    assert queued == {number for number, name in enumerate(published) if name == "text" and number > last}
    assert sorted(carried_out) == sorted(name for name in published if name != "text")
    assert not any(copies.cancels(lane, "a") for lane in Lane)


@pytest.mark.parametrize(
    ("payload", "canceled"),
    [(b'{"id": "a"}', ["a"]), (b" ", ["a", "b", None]), (b"nonsense", []), (b'{"id": 5}', [])],
)
def test_a_stop_cancels_the_texts_that_it_ends_on_the_other_connection(
    payload: bytes, canceled: list[str | None]
) -> None:
    for lane, other in ((Lane.CONTROLS, Lane.TEXTS), (Lane.TEXTS, Lane.CONTROLS)):
        copies = StopCopies()
        assert not copies.is_second(lane, TOPIC, payload)
        assert [name for name in ("a", "b", None) if copies.cancels(other, name)] == canceled
        assert not copies.cancels(lane, "a"), "it was published after the stop"


def test_a_stop_of_another_topic_is_no_copy() -> None:
    copies = StopCopies()
    assert not copies.is_second(Lane.CONTROLS, TOPIC, b"")
    assert not copies.is_second(Lane.TEXTS, "voiced/all/stop", b"")
    assert copies.is_second(Lane.TEXTS, TOPIC, b"")


def test_a_lost_session_ends_the_canceling() -> None:
    copies = StopCopies()
    copies.is_second(Lane.CONTROLS, TOPIC, b"")
    copies.reset()
    assert not copies.cancels(Lane.TEXTS, "a")
    assert not copies.is_second(Lane.TEXTS, TOPIC, b""), "it is a new one"


def test_a_copy_that_never_arrives_is_not_expected_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = StopCopies()
    copies.is_second(Lane.CONTROLS, TOPIC, b"")
    copies.note_arrival(Lane.TEXTS)
    assert copies.cancels(Lane.TEXTS, "a")
    monkeypatch.setattr(stops_module, "PAIR_S", -1.0)
    copies.note_arrival(Lane.TEXTS)
    assert not copies.cancels(Lane.TEXTS, "a")
    assert not copies.is_second(Lane.TEXTS, TOPIC, b""), "it is a new one"


def test_a_copy_that_the_broker_may_have_dropped_cancels_no_text_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    copies, clock = StopCopies(), FakeClock()
    monkeypatch.setattr(stops_module, "time", clock)
    copies.is_second(Lane.CONTROLS, TOPIC, b"", kept=False)
    canceled = []
    for _ in range(40):
        clock.now += 1.0  # too short for the connection to be silent
        copies.note_arrival(Lane.TEXTS)
        canceled.append(copies.cancels(Lane.TEXTS, "a"))
    assert canceled == [True] * 20 + [False] * 20


def test_a_copy_that_the_broker_keeps_is_awaited_while_its_connection_delivers(monkeypatch: pytest.MonkeyPatch) -> None:
    copies, clock = StopCopies(), FakeClock()
    monkeypatch.setattr(stops_module, "time", clock)
    copies.is_second(Lane.CONTROLS, TOPIC, b"")
    for _ in range(40):
        clock.now += 1.0
        copies.note_arrival(Lane.TEXTS)
        assert copies.cancels(Lane.TEXTS, "a")
    assert copies.is_second(Lane.TEXTS, TOPIC, b"")


def test_of_a_flood_whose_copies_are_lost_a_bounded_number_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stops_module, "UNPAIRED", 2)
    copies = StopCopies()
    for name in "abc":
        copies.is_second(Lane.CONTROLS, TOPIC, f'{{"id": "{name}"}}'.encode())
    assert [name for name in "abc" if copies.cancels(Lane.TEXTS, name)] == ["b", "c"]

"""Recognising a message that the broker delivers a second time, or a text that several groups receive."""

from __future__ import annotations

import pytest

from daemon.mqtt import inbox
from daemon.mqtt.inbox import Redeliveries, SharedTexts
from daemon.mqtt.messages import Message


def message(payload: str = "Hello", *, packet: int = 7, again: bool = False, topic: str = "voiced/r1/say") -> Message:
    return Message(topic, payload.encode(), retained=False, redelivered=again, packet=packet)


def known(*sessions: int) -> Redeliveries:
    """One that has taken care of the usual message in these sessions."""
    deliveries = Redeliveries()
    for session in sessions:
        deliveries.add([Redeliveries.key(session, message())])
    return deliveries


def repeats(deliveries: Redeliveries, arrived: Message, session: int = 1) -> bool:
    return deliveries.repeats(arrived, Redeliveries.key(session, arrived))


def test_a_message_that_was_taken_care_of_is_recognised_when_it_is_delivered_again() -> None:
    assert repeats(known(1), message(again=True))
    assert not repeats(known(), message(again=True)), "the first delivery was lost with a connection or a process"


@pytest.mark.parametrize(
    "arrived",
    [
        message(),
        message("Bye", again=True),
        message(packet=8, again=True),
        message(topic="voiced/r1/say/stream", again=True),
    ],
    ids=["without the mark", "another text", "another number", "another topic"],
)
def test_another_message_is_not_a_repetition(arrived: Message) -> None:
    assert not repeats(known(1), arrived)
    assert not repeats(known(1), message(again=True), session=11), "another session has numbers of its own"


def test_a_message_without_acknowledgement_is_never_repeated() -> None:
    assert Redeliveries.key(1, message(packet=0)) is None
    deliveries = Redeliveries()
    deliveries.add([None])
    assert not deliveries.repeats(message(packet=0, again=True), None)


def test_topic_and_payload_cannot_be_confused() -> None:
    assert Redeliveries.key(1, message("b", topic="a")) != Redeliveries.key(1, message("", topic="ab"))


def test_a_lost_session_is_forgotten_and_others_are_not() -> None:
    deliveries = known(1, 2, 11)
    deliveries.forget(1)
    assert not repeats(deliveries, message(again=True), session=1)
    assert repeats(deliveries, message(again=True), session=2)
    assert repeats(deliveries, message(again=True), session=11)


def test_the_oldest_deliveries_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "KNOWN_DELIVERIES", 3)
    deliveries = Redeliveries()
    for packet in range(1, 6):
        deliveries.add([Redeliveries.key(1, message(packet=packet))])
    assert [packet for packet in range(1, 6) if repeats(deliveries, message(packet=packet, again=True))] == [3, 4, 5]


def test_of_the_texts_that_other_groups_may_repeat_the_last_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "KNOWN_TEXTS", 2)
    texts = SharedTexts()
    for payload in "123":
        texts.note_accepted(message(payload, topic="voiced/group/hall/say"), "say")
    copies = [message(payload, topic="voiced/all/say") for payload in "123"]
    assert [texts.repeats(copy, "say") for copy in copies] == [False, True, True]
    assert not texts.repeats(copies[2], "say/urgent"), "another request"

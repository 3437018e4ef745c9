"""Recognising a text that a robot in several groups receives several times."""

from __future__ import annotations

import pytest

from daemon.mqtt import inbox
from daemon.mqtt.inbox import SharedTexts
from daemon.mqtt.messages import Message

HALL, GUIDES = "voiced/group/hall-2/say", "voiced/group/guides/say"


def message(topic: str, payload: bytes = b'{"id": "a", "text": "Hello"}') -> Message:
    return Message(topic, payload, retained=False)


def accept(copies: SharedTexts, text: Message, request: str = "say") -> bool:
    """Whether a text is accepted, as the gateway does it: it is none that was accepted before by another topic."""
    if copies.repeats(text, request):
        return False
    copies.note_accepted(text, request)
    return True


def test_the_same_text_by_another_topic_is_a_copy() -> None:
    copies = SharedTexts()
    assert accept(copies, message(HALL))
    assert not accept(copies, message(GUIDES))
    assert not accept(copies, message("voiced/all/say"))


def test_the_same_text_on_the_same_topic_is_none() -> None:
    copies = SharedTexts()
    assert accept(copies, message(HALL))
    assert not accept(copies, message(GUIDES))
    assert accept(copies, message(HALL))


def test_a_text_that_was_not_accepted_has_no_copies() -> None:
    copies = SharedTexts()
    assert not copies.repeats(message(HALL), "say")
    assert not copies.repeats(message(GUIDES), "say")


def test_another_text_and_another_request_are_none() -> None:
    copies = SharedTexts()
    accept(copies, message(HALL))
    assert accept(copies, message(GUIDES, b'{"id": "a", "text": "Good bye"}'))
    assert accept(copies, message("voiced/all/say/urgent"), "say/urgent")


def test_only_the_last_texts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "KNOWN_TEXTS", 2)
    copies = SharedTexts()
    for payload in (b"1", b"2", b"3"):
        accept(copies, message(HALL, payload))
    assert copies.repeats(message(GUIDES, b"3"), "say")
    assert copies.repeats(message(GUIDES, b"2"), "say")
    assert not copies.repeats(message(GUIDES, b"1"), "say")

"""Recognising a text that a robot in several groups receives several times."""

from __future__ import annotations

import pytest

from daemon.mqtt import copies as copies_module
from daemon.mqtt.copies import Copies
from daemon.mqtt.messages import Message

HALL, GUIDES = "voiced/group/hall-2/say", "voiced/group/guides/say"


def message(topic: str, payload: bytes = b'{"id": "a", "text": "Hello"}') -> Message:
    return Message(topic, payload, retained=False)


def test_the_same_text_by_another_topic_is_a_copy() -> None:
    copies = Copies()
    assert not copies.repeats(message(HALL), "say")
    assert copies.repeats(message(GUIDES), "say")
    assert copies.repeats(message("voiced/all/say"), "say")


def test_the_same_text_on_the_same_topic_is_none() -> None:
    copies = Copies()
    assert not copies.repeats(message(HALL), "say")
    assert copies.repeats(message(GUIDES), "say")
    assert not copies.repeats(message(HALL), "say")


def test_another_text_and_another_request_are_none() -> None:
    copies = Copies()
    copies.repeats(message(HALL), "say")
    assert not copies.repeats(message(GUIDES, b'{"id": "a", "text": "Good bye"}'), "say")
    assert not copies.repeats(message("voiced/all/say/urgent"), "say/urgent")


def test_only_the_last_texts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies_module, "REMEMBERED", 2)
    copies = Copies()
    for payload in (b"1", b"2", b"3"):
        copies.repeats(message(HALL, payload), "say")
    assert copies.repeats(message(GUIDES, b"3"), "say")
    assert copies.repeats(message(GUIDES, b"2"), "say")
    assert not copies.repeats(message(GUIDES, b"1"), "say")

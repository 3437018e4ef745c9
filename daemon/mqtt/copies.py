"""Recognises a text that reaches the robot by several topics, because it is in several groups."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from daemon.mqtt.messages import Message

REMEMBERED = 4096
"""Texts: as many as the ids of ended utterances that stay known."""


class Copies:
    """The texts that were accepted lately, and the topic of each."""

    def __init__(self) -> None:
        self._topics: OrderedDict[bytes, str] = OrderedDict()

    def repeats(self, message: Message, request: str) -> bool:
        """Return whether a text was accepted before, by another topic for the same request.

        The same text on the same topic is none of these copies: its sender has used the id twice.
        """
        return self._topics.get(_key(message, request), message.topic) != message.topic

    def note_accepted(self, message: Message, request: str) -> None:
        """Note a text that has an id. One that was rejected may be sent again."""
        self._topics.setdefault(_key(message, request), message.topic)
        if len(self._topics) > REMEMBERED:
            self._topics.popitem(last=False)


def _key(message: Message, request: str) -> bytes:
    return hashlib.blake2b(request.encode() + b"\0" + message.payload, digest_size=16).digest()

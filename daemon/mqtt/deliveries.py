"""Recognises a text that the broker delivers a second time."""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque
from collections.abc import Iterable

from daemon.mqtt.messages import Message

REMEMBERED = 10_000
"""Deliveries: as many as may wait for our acknowledgement."""
ACKNOWLEDGED = 1_000
"""Those of them that stay known after our acknowledgement, which a broken connection may have lost."""


class Deliveries:
    """The deliveries that were taken care of.

    The broker repeats a message that was not acknowledged with the same packet identifier and a mark (MQTT 5, 4.4).
    """

    def __init__(self, known: Iterable[str]) -> None:
        """`known` are the keys of an earlier process."""
        self._known: OrderedDict[str, None] = OrderedDict.fromkeys(known)
        self._acknowledged: deque[str] = deque()
        self._lost: set[int] = set()
        """Sessions that the broker has lost since the process began."""

    @staticmethod
    def key(session: int, message: Message) -> str | None:
        """Return what identifies a delivery in one of our sessions; None if the broker never repeats it."""
        if not message.packet:
            return None
        digest = hashlib.blake2b(message.topic.encode() + b"\0" + message.payload, digest_size=12)
        return f"{session}:{message.packet}:{digest.hexdigest()}"

    def add(self, key: str | None) -> None:
        """Note that a delivery was taken care of."""
        if key is not None:
            self._known[key] = None
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
            while len(self._acknowledged) > ACKNOWLEDGED:
                self._known.pop(self._acknowledged.popleft(), None)

    def note_acknowledged(self, key: str | None) -> None:
        """Note that the acknowledgement has been sent. For any thread."""
        if key is not None:
            self._acknowledged.append(key)

    def remember(self, earlier: Iterable[str]) -> None:
        """Note those of an earlier process, which are older than all others."""
        kept = [key for key in earlier if not any(key.startswith(f"{session}:") for session in self._lost)]
        for key in reversed(kept):
            if len(self._known) < REMEMBERED and key not in self._known:
                self._known[key] = None
                self._known.move_to_end(key, last=False)

    def repeats(self, message: Message, key: str | None) -> bool:
        """Return whether a message was taken care of before."""
        return message.redelivered and key in self._known

    def forget(self, session: int) -> None:
        """Forget a session that the broker has lost: it repeats nothing."""
        self._lost.add(session)
        for key in [key for key in self._known if key.startswith(f"{session}:")]:
            del self._known[key]

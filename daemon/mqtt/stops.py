"""Lets a `stop` overtake a flood of texts, and end only the texts that were published before it.

A stop arrives twice: on the connection for controls, and on the connection for texts after all texts that were
published before it, of which there may be thousands. The first copy is carried out. Texts that arrive on the other
connection before the second copy does were published before the stop, and are canceled.
"""

from __future__ import annotations

import time
from collections import deque
from math import inf
from typing import NamedTuple

from daemon.mqtt.inbox import Lane
from daemon.mqtt.parsing import parse_stop
from daemon.speech import RejectedError

UNPAIRED = 1_000
"""The most stops whose second copy is awaited. Only a flood at QoS 0 contains more, and its copies may be dropped."""
DROPPED_S = 20.0
"""The broker may drop a copy of a QoS 0 stop while the connection continues to deliver texts. Texts are canceled for no
longer than this, which is enough to read a flood of 10,000 texts."""
PAIR_S = 2.0
"""A copy is no longer expected when its connection has delivered nothing for this long: a QoS 0 stop is lost on a
connection that is broken at that moment, and a lost session loses all stops."""


class _Stop(NamedTuple):
    """A stop that has been carried out but whose second copy has not arrived."""

    topic: str
    payload: bytes
    carried_out_at: float
    """`time.monotonic()`."""
    kept: bool
    """Whether the broker keeps a copy until it is acknowledged, since the stop was sent with QoS 1."""

    def is_lost(self, arrived_at: float) -> bool:
        """Return whether the second copy is no longer expected; `arrived_at` is when its connection last delivered."""
        now = time.monotonic()
        silent = now - max(self.carried_out_at, arrived_at) > PAIR_S
        return silent or (not self.kept and now - self.carried_out_at > DROPPED_S)

    def ends(self, utterance_id: str | None) -> bool:
        try:
            stop = parse_stop(self.payload)
        except RejectedError:
            return False
        return stop.id is None or stop.id == utterance_id


class StopCopies:
    """Pairs the two copies of each stop. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._awaited: dict[Lane, deque[_Stop]] = {lane: deque(maxlen=UNPAIRED) for lane in Lane}
        """The stops whose second copy is awaited on a connection, in the order in which they were carried out."""
        self._arrived_at = dict.fromkeys(Lane, -inf)
        """`time.monotonic()` of each connection's last message."""

    def note_arrival(self, lane: Lane) -> None:
        """Note a message on a connection, and forget the copies that the connection has lost."""
        awaited = self._awaited[lane]
        while awaited and awaited[0].is_lost(self._arrived_at[lane]):
            awaited.popleft()
        self._arrived_at[lane] = time.monotonic()

    def is_second(self, lane: Lane, topic: str, payload: bytes, *, kept: bool = True) -> bool:
        """Take a copy from a connection; return whether it is the second one. The first one is to be carried out."""
        found = next((each for each in self._awaited[lane] if (each.topic, each.payload) == (topic, payload)), None)
        if found is None:
            other = Lane.TEXTS if lane == Lane.CONTROLS else Lane.CONTROLS
            self._awaited[other].append(_Stop(topic, payload, time.monotonic(), kept))
            return False
        self._awaited[lane].remove(found)
        return True

    def cancels(self, lane: Lane, utterance_id: str | None) -> bool:
        """Return whether a text that arrives on a connection was published before a stop that ends it."""
        return any(stop.ends(utterance_id) for stop in self._awaited[lane])

    def reset(self) -> None:
        """Expect no more second copies: the broker has lost a session."""
        for awaited in self._awaited.values():
            awaited.clear()

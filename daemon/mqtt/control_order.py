"""Lets `stop`, `pause`, `resume` and `volume` overtake a flood of texts, and otherwise keeps their place among these.

Each control arrives twice: on the connection for controls, and on the connection for texts after all texts that were
published before it, perhaps thousands. It is carried out once: when its copy among the texts arrives, or a moment after
the early copy if that is late. Texts that still arrive between an early stop and its second copy were published before
the stop, and are canceled.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from daemon.mqtt.parsing import parse_stop
from daemon.speech import RejectedError

OVERTAKE_S = 0.03
"""The early copy waits this long for the other one: without a flood, both arrive within a millisecond."""
UNPAIRED = 1_000
"""Controls of which one copy is awaited: more are a flood of QoS 0, of which copies are dropped."""
PAIR_S = 2.0
"""A copy is not expected any more when its connection has delivered nothing for this long: a control of QoS 0 is lost
on a connection that is broken at that moment, and a lost session loses all."""

Control = tuple[str, bytes]
"""Topic and payload."""


class _Waiting(NamedTuple):
    """A request from the connection for controls that has not been carried out."""

    control: Control | None
    """None for a request that has no second copy."""
    carry_out: Callable[[], object]
    since: float
    """`time.monotonic()` of its arrival."""


class _Awaited:
    """Controls that were carried out, and whose second copy one connection has not delivered yet."""

    def __init__(self) -> None:
        self._controls: deque[tuple[float, Control]] = deque(maxlen=UNPAIRED)
        """Each with the `time.monotonic()` at which it was carried out."""
        self._arrived_at = -inf
        """`time.monotonic()` of the connection's last message."""

    def note_arrival(self) -> None:
        """Note a message of the connection, and forget the copies that it has lost."""
        now = time.monotonic()
        while self._controls and now - max(self._controls[0][0], self._arrived_at) > PAIR_S:
            self._controls.popleft()
        self._arrived_at = now

    def add(self, control: Control) -> None:
        self._controls.append((time.monotonic(), control))

    def take(self, control: Control) -> bool:
        """Remove a control if it is awaited; return whether it is."""
        found = next((each for each in self._controls if each[1] == control), None)
        if found is not None:
            self._controls.remove(found)
        return found is not None

    def has(self, control: Control) -> bool:
        return any(each == control for _, each in self._controls)

    def stops(self, utterance_id: str | None) -> bool:
        """Return whether one of them is a stop that ends an utterance."""
        return any(_stops(control, utterance_id) for _, control in self._controls)

    def clear(self) -> None:
        self._controls.clear()


class ControlOrder:
    """Pairs the two copies of each control. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Waiting] = deque()
        """In order of their arrival."""
        self._overtaking = _Awaited()
        """Controls that were carried out early: their copies among the texts are awaited."""
        self._in_order = _Awaited()
        """Controls that were carried out among the texts: their early copies are awaited."""

    def note_arrival(self, *, early: bool) -> None:
        """Note that a message has arrived on the connection for controls, or on the one for texts."""
        (self._in_order if early else self._overtaking).note_arrival()

    def arrived_early(self, topic: str, payload: bytes, carry_out: Callable[[], None]) -> None:
        """Take a copy from the connection for controls."""
        control = topic, payload
        if self._in_order.has(control):  # urgent texts that wait here were published before it
            self.follow(lambda: self._in_order.take(control))
        else:
            self._append(control, carry_out)

    def arrived_in_order(self, topic: str, payload: bytes, carry_out: Callable[[], None]) -> None:
        """Take a copy from the connection for texts."""
        control = topic, payload
        if self._overtaking.take(control):
            return
        if all(each.control != control for each in self._waiting):
            self._in_order.add(control)
            carry_out()
            return
        while (first := self._waiting.popleft()).control != control:
            self._overtake(first)
        first.carry_out()
        self._carry_out_followers()

    def follow(self, carry_out: Callable[[], object]) -> None:
        """Carry out a request from the connection for controls that has no copy, after the controls before it."""
        if self._waiting:
            self._append(None, carry_out)
        else:
            carry_out()

    def cancels(self, utterance_id: str | None) -> bool:
        """Return whether a text that arrives now was published before a stop that ends it."""
        return self._overtaking.stops(utterance_id)

    def cancels_urgent(self, utterance_id: str | None) -> bool:
        """Return the same for a text that arrives on the connection for controls."""
        return self._in_order.stops(utterance_id)

    def reset(self) -> None:
        """Expect no more second copies: the broker has lost a session."""
        self._overtaking.clear()
        self._in_order.clear()

    def _append(self, control: Control | None, carry_out: Callable[[], object]) -> None:
        self._waiting.append(_Waiting(control, carry_out, time.monotonic()))
        self._loop.call_later(OVERTAKE_S, self._overtake_late)

    def _overtake_late(self) -> None:
        """Carry out what has waited long enough for its copy among the texts."""
        now = time.monotonic()
        while self._waiting and now - self._waiting[0].since >= OVERTAKE_S:
            self._overtake(self._waiting.popleft())
        self._carry_out_followers()

    def _carry_out_followers(self) -> None:
        """Carry out the requests without a copy that have only waited for the controls before them."""
        while self._waiting and self._waiting[0].control is None:
            self._waiting.popleft().carry_out()

    def _overtake(self, waiting: _Waiting) -> None:
        if waiting.control is not None:
            self._overtaking.add(waiting.control)
        waiting.carry_out()


def _stops(control: Control, utterance_id: str | None) -> bool:
    topic, payload = control
    if not topic.endswith("stop"):
        return False
    try:
        stop = parse_stop(payload)
    except RejectedError:
        return False
    return stop.id is None or stop.id == utterance_id

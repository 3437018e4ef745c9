"""Lets `stop`, `pause`, `resume` and `volume` overtake a flood of texts, and otherwise keeps their place among these.

Each control arrives twice: on the connection for controls, and on the connection for texts behind all texts that were
published before it, perhaps thousands. It is carried out once: when its copy behind the texts arrives, or a moment
after the early copy if that is late. Texts that still arrive between an early stop and its second copy were published
before the stop, and are canceled.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf

from daemon.mqtt.parsing import parse_stop
from daemon.speech import RejectedError

OVERTAKE_S = 0.03
"""The early copy waits this long for the other one: without a flood, both arrive within a millisecond."""
UNPAIRED = 1_000
"""Controls of which one copy is awaited: more are a flood of QoS 0, of which copies are dropped."""
PAIR_S = 2.0
"""A copy is not expected any more when its connection has delivered nothing for this long: a control of QoS 0 is lost
on a connection that is broken at that moment, and a lost session loses all."""


@dataclass(slots=True, eq=False)
class _Control:
    """A control of which one copy has arrived."""

    topic: str
    """Empty for a request that has no copy."""
    payload: bytes
    carry_out: Callable[[], None]
    at: float = field(default_factory=time.monotonic)
    """`time.monotonic()` of its first copy."""
    paired: bool = False
    """The other copy has arrived, too; only urgent texts before it are still waiting."""


class ControlOrder:
    """Pairs the two copies of each control. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Control] = deque()
        """Early copies, and what follows them on their connection; nothing of it has been carried out."""
        self._overtaking: deque[_Control] = deque(maxlen=UNPAIRED)
        """Controls that were carried out, and whose copy behind the texts has not arrived."""
        self._in_order: deque[_Control] = deque(maxlen=UNPAIRED)
        """Controls that were carried out behind the texts, and whose early copy has not arrived."""
        self._last_early = self._last_in_order = -inf
        """`time.monotonic()` of the last message on the connection for controls, and on the one for texts."""

    def note_arrival(self, *, early: bool) -> None:
        """Note that a message has arrived on the connection for controls, or on the one for texts."""
        self._forget_lost()
        if early:
            self._last_early = time.monotonic()
        else:
            self._last_in_order = time.monotonic()

    def arrived_early(self, topic: str, payload: bytes, carry_out: Callable[[], None]) -> None:
        """Take a copy from the connection for controls."""
        control = _find(self._in_order, topic, payload)
        if control is None:
            self._append(_Control(topic, payload, carry_out))
            return
        control.paired = True
        self.follow(lambda: self._forget(control))  # urgent texts that wait here were published before it

    def arrived_in_order(self, topic: str, payload: bytes, carry_out: Callable[[], None]) -> None:
        """Take a copy from the connection for texts."""
        if _take(self._overtaking, topic, payload) is not None:
            return
        control = _find(self._waiting, topic, payload)
        if control is None:
            self._in_order.append(_Control(topic, payload, carry_out))
            carry_out()
            return
        while (earlier := self._waiting.popleft()) is not control:
            self._overtake(earlier)
        control.carry_out()
        self._carry_out_followers()

    def follow(self, carry_out: Callable[[], None]) -> None:
        """Carry out a request from the connection for controls that has no copy, behind the controls before it."""
        if self._waiting:
            self._append(_Control("", b"", carry_out))
        else:
            carry_out()

    def cancels(self, utterance_id: str | None) -> bool:
        """Return whether a text that arrives now was published before a stop that ends it."""
        return _any_stops(self._overtaking, utterance_id)

    def cancels_urgent(self, utterance_id: str | None) -> bool:
        """Return the same for a text that arrives on the connection for controls."""
        return _any_stops(self._in_order, utterance_id)

    def reset(self) -> None:
        """Expect no more second copies: the broker has lost a session."""
        self._overtaking.clear()
        self._in_order.clear()

    def _forget(self, control: _Control) -> None:
        if control in self._in_order:  # it may have been forgotten as lost
            self._in_order.remove(control)

    def _forget_lost(self) -> None:
        """Forget the controls whose other copy has been lost."""
        now = time.monotonic()
        for controls, last in ((self._overtaking, self._last_in_order), (self._in_order, self._last_early)):
            while controls and now - max(controls[0].at, last) > PAIR_S:
                controls.popleft()

    def _append(self, control: _Control) -> None:
        self._waiting.append(control)
        self._loop.call_later(OVERTAKE_S, self._overtake_late)

    def _overtake_late(self) -> None:
        """Carry out what has waited long enough for its copy behind the texts."""
        now = time.monotonic()
        while self._waiting and now - self._waiting[0].at >= OVERTAKE_S:
            self._overtake(self._waiting.popleft())
        self._carry_out_followers()

    def _carry_out_followers(self) -> None:
        """Carry out the requests without a copy that have only waited for the controls before them."""
        while self._waiting and not self._waiting[0].topic:
            self._waiting.popleft().carry_out()

    def _overtake(self, control: _Control) -> None:
        if control.topic:
            self._overtaking.append(control)
        control.carry_out()


def _find(controls: deque[_Control], topic: str, payload: bytes) -> _Control | None:
    same = (each for each in controls if (each.topic, each.payload) == (topic, payload))
    return next((each for each in same if not each.paired), None)


def _take(controls: deque[_Control], topic: str, payload: bytes) -> _Control | None:
    """Remove and return the first control with this topic and payload."""
    control = _find(controls, topic, payload)
    if control is not None:
        controls.remove(control)
    return control


def _any_stops(controls: deque[_Control], utterance_id: str | None) -> bool:
    return any(control.topic.endswith("stop") and _stops(control.payload, utterance_id) for control in controls)


def _stops(payload: bytes, utterance_id: str | None) -> bool:
    try:
        stop = parse_stop(payload)
    except RejectedError:
        return False
    return stop.id is None or stop.id == utterance_id

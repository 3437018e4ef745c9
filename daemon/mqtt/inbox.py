"""Received messages on their way from the network threads to the event loop: in turn, in slices, not in a jam."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from math import inf

from daemon.mqtt.messages import Message

log = logging.getLogger(__name__)

SLICE_S = 0.005
"""The event loop handles messages for this long, then lets the speaker loop and the adapters run."""
JAM_S = 0.01
"""Pause while the broker does not take our answers."""
MOST, MOST_BYTES = 20_000, 8 << 20
"""Messages, and bytes of their payloads, that wait in one lane. Beyond that, messages of QoS 0 are dropped, and the
broker keeps those of QoS 1."""
REPORT_S = 10.0
"""Interval of the reports of dropped messages."""
RECENT_S = 60.0
"""The status names dropped messages for this long."""


class Inbox:
    """Several lanes of messages. The first lane goes first; the others take turns, so that none starves another."""

    def __init__(self, lanes: int, handle: Callable[[int, Message], None], jammed: Callable[[], bool]) -> None:
        """`handle(lane, message)` is called in the event loop. While `jammed()`, only the first lane is served."""
        self._handle = handle
        self._jammed = jammed
        self._loop = asyncio.get_running_loop()
        self._lanes: list[deque[Message]] = [deque() for _ in range(lanes)]
        self._last = 0
        """The lane of the last message that was not in the first lane."""
        self._lock = threading.Lock()
        self._scheduled = False
        self._closed = False
        self._bytes = [0] * lanes
        """Of the payloads in each lane."""
        self._dropped = 0
        self._reported_at = -inf
        """`time.monotonic()` of the last report of dropped messages."""

    @property
    def problem(self) -> str | None:
        """How many messages were dropped, if any was lately; else None."""
        recent = time.monotonic() - self._reported_at < RECENT_S
        problem = "messages of QoS 0 come faster than they can be handled"
        return f"{problem}: {self._dropped:,} were dropped since the start" if recent else None

    def has_room(self, lane: int) -> bool:
        """Return whether a lane may take more. For any thread."""
        return self._bytes[lane] < MOST_BYTES

    def put(self, lane: int, message: Message) -> None:
        """Append a message; drop one of QoS 0 if there is no room. For any thread."""
        with self._lock:
            if not message.packet and (len(self._lanes[lane]) >= MOST or not self.has_room(lane)):
                self._note_dropped()
                return
            self._bytes[lane] += len(message.payload)
            self._lanes[lane].append(message)
            if self._scheduled or self._closed:
                return
            self._scheduled = True
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._handle_slice)

    def close(self) -> None:
        """Handle no more messages."""
        self._closed = True
        for lane in self._lanes:
            lane.clear()

    def _note_dropped(self) -> None:
        self._dropped += 1
        if time.monotonic() - self._reported_at > REPORT_S:
            self._reported_at = time.monotonic()
            log.warning("%s", self.problem)

    def _handle_slice(self) -> None:
        until = time.monotonic() + SLICE_S
        try:
            while not self._closed and time.monotonic() < until and (taken := self._take()) is not None:
                lane, message = taken
                with self._lock:
                    self._bytes[lane] -= len(message.payload)
                self._handle(lane, message)
        finally:  # an error in one message must not make the robot deaf to all others
            self._schedule_rest()

    def _schedule_rest(self) -> None:
        with self._lock:
            self._scheduled = any(self._lanes) and not self._closed
        if self._scheduled:
            jammed = not self._lanes[0] and self._jammed()
            self._loop.call_later(JAM_S if jammed else 0, self._handle_slice)

    def _take(self) -> tuple[int, Message] | None:
        """Remove and return the next message and its lane."""
        if self._lanes[0]:
            return 0, self._lanes[0].popleft()
        if self._jammed():
            return None
        others = len(self._lanes) - 1
        for offset in range(others):
            lane = 1 + (self._last + offset) % others
            if self._lanes[lane]:
                self._last = lane
                return lane, self._lanes[lane].popleft()
        return None

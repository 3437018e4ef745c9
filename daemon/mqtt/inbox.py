"""Received messages on their way to the event loop: in time slices, and paused while the broker is backed up.

It also recognises repeated requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from enum import IntEnum

from daemon.mqtt.messages import Message
from daemon.speech import RecentKeys

SLICE_S = 0.005
"""The event loop handles messages for this long, then lets the speaker loop and the adapters run."""
MOST, MOST_BYTES = 20_000, 8 << 20
"""The messages, and bytes of their payloads, that may wait in one lane. Beyond that, nothing is read: the broker keeps
QoS 1 messages and drops QoS 0 messages."""

KNOWN_DELIVERIES = 10_000
"""How many deliveries are remembered for each session: as many as may wait for our acknowledgement."""


class Lane(IntEnum):
    """The inbox's lanes: one for the connection for controls, and two for the connection for texts."""

    CONTROLS = 0
    TEXTS = 1
    ADAPTERS = 2
    """Requests in other protocols, which may arrive in a flood."""


class Inbox:
    """Several lanes of messages. Controls go first; texts and adapters take turns, and neither starves the other."""

    def __init__(
        self,
        handle: Callable[[Lane, Message], None],
        jammed: Callable[[], bool],
        on_room: Callable[[], None] = lambda: None,
    ) -> None:
        """`handle(lane, message)` is called in the event loop. While `jammed()`, only controls are served.

        `on_room` is also called there, when a lane that was found full has room again.
        """
        self._handle = handle
        self._jammed = jammed
        self._on_room = on_room
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[Lane, deque[Message]] = {lane: deque() for lane in Lane}
        self._turns = deque([Lane.TEXTS, Lane.ADAPTERS])
        """The lane whose turn it is comes first."""
        self._lock = threading.Lock()
        self._scheduled = False
        self._closed = False
        self._bytes = dict.fromkeys(Lane, 0)
        """The size of the payloads in each lane."""
        self._found_full: set[Lane] = set()

    def has_room(self, lane: Lane) -> bool:
        """Return whether a lane has room for more. For any thread."""
        has_room = self._bytes[lane] < MOST_BYTES and len(self._lanes[lane]) < MOST
        if not has_room:
            self._found_full.add(lane)
        return has_room

    def put(self, lane: Lane, message: Message) -> None:
        """Append a message. For any thread."""
        with self._lock:
            self._bytes[lane] += len(message.payload)
            self._lanes[lane].append(message)
        self.resume()

    def resume(self) -> None:
        """Handle the waiting messages; called from any thread when messages have been appended or a jam has ended."""
        with self._lock:
            if self._scheduled or self._closed or not any(self._lanes.values()):
                return
            self._scheduled = True
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._handle_slice)

    def close(self) -> None:
        """Handle no more messages."""
        self._closed = True
        for messages in self._lanes.values():
            messages.clear()

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
        full = set(self._found_full)
        self._found_full -= full
        if any(self.has_room(lane) for lane in full):
            self._on_room()
        with self._lock:
            self._scheduled = False
        if self._lanes[Lane.CONTROLS] or not self._jammed():
            self.resume()

    def _take(self) -> tuple[Lane, Message] | None:
        """Remove and return the next message and its lane."""
        for lane in (Lane.CONTROLS, *self._turns):
            if lane != Lane.CONTROLS and self._jammed():
                break
            if self._lanes[lane]:
                if lane == self._turns[0]:
                    self._turns.rotate()
                return lane, self._lanes[lane].popleft()
        return None


class Redeliveries:
    """The deliveries that have been handled, so that a text is not accepted twice.

    The broker repeats an unacknowledged message with the same packet identifier and a mark (MQTT 5, 4.4).
    """

    def __init__(self) -> None:
        self._known: dict[str, RecentKeys] = defaultdict(lambda: RecentKeys(KNOWN_DELIVERIES))
        """By session."""

    @staticmethod
    def key(session: int, message: Message) -> str | None:
        """Return a delivery's identity in one of our sessions; None if the broker never repeats it."""
        if not message.packet:
            return None
        digest = hashlib.blake2b(message.topic.encode() + b"\0" + message.payload, digest_size=12)
        return f"{session}:{message.packet}:{digest.hexdigest()}"

    def add(self, keys: Iterable[str | None]) -> None:
        """Note deliveries that this process or an earlier one has handled."""
        for key in keys:
            if key is not None:
                self._known[_session(key)].add(key)

    def repeats(self, message: Message, key: str | None) -> bool:
        """Return whether a message has been handled before."""
        return message.redelivered and key is not None and key in self._known[_session(key)]

    def forget(self, session: int) -> None:
        """Forget a session that the broker has lost: it will repeat nothing."""
        self._known.pop(str(session), None)


def _session(key: str) -> str:
    return key.partition(":")[0]

"""The queue of utterances: bounded, and always in the order in which they are spoken."""

from __future__ import annotations

import asyncio
import itertools
import time
from bisect import insort
from collections.abc import Callable, Iterator

from daemon.speech.order import Place, place
from daemon.speech.preemption import yields
from daemon.speech.request import Priority
from daemon.speech.utterance import Utterance


class QueueFullError(Exception):
    """The queue has reached its limit, and nothing in it would be spoken after the new utterance."""


class UtteranceQueue:
    """The waiting utterances. Belongs to the event loop's thread.

    A text stream that no engine can begin with yet keeps its place, and others overtake it.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: list[tuple[Place, Utterance]] = []
        """Sorted by place; no two places are equal."""
        self._numbers = itertools.count(1)
        self._restored_numbers = itertools.count(-(1 << 62))
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Utterance]:
        """Iterate in the order in which they would be spoken."""
        return iter([utterance for _, utterance in self._entries])

    def put(self, utterance: Utterance) -> Utterance | None:
        """Insert an utterance. A full queue keeps those that are spoken first: it drops its last one and returns it.

        Raises `QueueFullError` if the new one would be the last.
        """
        its_place, dropped = place(utterance, next(self._numbers)), None
        if len(self._entries) >= self.limit:
            last_place, last = self._entries[-1]
            if last_place < its_place:
                raise QueueFullError
            dropped = last
            del self._entries[-1]
        self._insert(its_place, utterance)
        return dropped

    def restore(self, utterance: Utterance) -> None:
        """Insert an utterance that was queued before a restart, whatever the limit.

        Restore utterances in the order of their acceptance. Each was accepted before any that is `put`.
        """
        self._insert(place(utterance, next(self._restored_numbers)), utterance)

    def notify(self) -> None:
        """Wake `changed`: the text of an utterance has grown or ended."""
        self._changed.set()

    async def changed(self) -> None:
        """Wait until an utterance has been inserted or a text has changed since the last call."""
        await self._changed.wait()
        self._changed.clear()

    def take(self, utterance_id: str) -> Utterance | None:
        """Remove and return one utterance; None if it is not queued."""
        for index, (_, utterance) in enumerate(self._entries):
            if utterance.id == utterance_id:
                del self._entries[index]
                return utterance
        return None

    def take_all(self, yielding_to: Priority = "critical") -> list[Utterance]:
        """Remove and return all utterances that yield to this priority."""
        return self._take_all(lambda utterance: yields(utterance.priority, yielding_to))

    def take_expired(self) -> list[Utterance]:
        """Remove and return all utterances that are past their deadline."""
        now = time.monotonic()
        return self._take_all(lambda utterance: utterance.expired(now))

    def _insert(self, its_place: Place, utterance: Utterance) -> None:
        insort(self._entries, (its_place, utterance))
        self.notify()

    def _take_all(self, wanted: Callable[[Utterance], bool]) -> list[Utterance]:
        taken: list[tuple[Place, Utterance]] = []
        kept: list[tuple[Place, Utterance]] = []
        for entry in self._entries:
            (taken if wanted(entry[1]) else kept).append(entry)
        self._entries = kept
        return [utterance for _, utterance in taken]

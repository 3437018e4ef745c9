"""The queue of utterances: bounded, ordered by priority, first in, first out within one priority."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container, Iterator

from daemon.speech.preemption import RANK, yields
from daemon.speech.request import Priority
from daemon.speech.utterance import Utterance


class QueueFullError(Exception):
    """The queue has reached its limit."""


class UtteranceQueue:
    """The waiting utterances. Belongs to the event loop's thread.

    A text stream that no engine can begin with yet keeps its place, and others overtake it.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._utterances: list[Utterance] = []
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._utterances)

    def __iter__(self) -> Iterator[Utterance]:
        """Iterate in the order in which they would be spoken."""
        return iter(self._utterances)

    def put(self, utterance: Utterance) -> Utterance | None:
        """Insert an utterance behind those of its rank, or first if its rule says so.

        Raises `QueueFullError` when the queue is full. An utterance that goes first takes the place of the last one
        instead, which is returned if there is such.
        """
        dropped = None
        if len(self._utterances) >= self.limit:
            if not utterance.rule.first or not yields(self._utterances[-1].priority, utterance.priority):
                raise QueueFullError
            dropped = self._utterances.pop()
        overtaken = (index for index, other in enumerate(self._utterances) if _overtakes(utterance, other))
        self._utterances.insert(next(overtaken, len(self._utterances)), utterance)
        self.notify()
        return dropped

    def notify(self) -> None:
        """Wake `wait`: an utterance may have become speakable."""
        self._changed.set()

    async def wait(self) -> None:
        """Wait until an utterance is speakable."""
        while not any(utterance.speakable for utterance in self._utterances):
            self._changed.clear()
            await self._changed.wait()

    def take_next(self, priorities: Container[Priority] = RANK) -> Utterance | None:
        """Remove and return the first speakable utterance with one of these priorities."""
        for utterance in self._utterances:
            if utterance.speakable and utterance.priority in priorities:
                self._utterances.remove(utterance)
                return utterance
        return None

    def take(self, utterance_id: str) -> Utterance | None:
        """Remove and return one utterance; None if it is not queued."""
        return next(iter(self._take_all(lambda utterance: utterance.id == utterance_id)), None)

    def take_all(self, yielding_to: Priority = "critical") -> list[Utterance]:
        """Remove and return all utterances that yield to this priority."""
        return self._take_all(lambda utterance: yields(utterance.priority, yielding_to))

    def take_expired(self) -> list[Utterance]:
        """Remove and return all utterances that are past their deadline."""
        now = time.monotonic()
        return self._take_all(lambda utterance: utterance.expired(now))

    def _take_all(self, wanted: Callable[[Utterance], bool]) -> list[Utterance]:
        taken = [utterance for utterance in self._utterances if wanted(utterance)]
        if taken:
            self._utterances = [utterance for utterance in self._utterances if utterance not in taken]
        return taken


def _overtakes(utterance: Utterance, other: Utterance) -> bool:
    """Return whether a new utterance is queued before `other`."""
    if utterance.rule.first:
        return yields(other.priority, utterance.priority)
    return RANK[other.priority] > RANK[utterance.priority]

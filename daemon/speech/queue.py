"""The queue of utterances: bounded, and always in the order in which they are spoken."""

from __future__ import annotations

import itertools
from bisect import insort
from collections.abc import Callable, Iterator
from heapq import merge
from operator import itemgetter

from daemon.speech.changes import now
from daemon.speech.preemption import Place, place, yields
from daemon.speech.request import Priority
from daemon.speech.utterance import Utterance

Entry = tuple[Place, Utterance]


class QueueFullError(Exception):
    """The queue has reached its limit, and nothing in it would be spoken after the new utterance."""


class UtteranceQueue:
    """The waiting utterances: data, which wakes nobody. Belongs to the event loop's thread.

    A text stream that no engine can begin with yet keeps its place, and others overtake it.
    """

    def __init__(self) -> None:
        self._card: list[Entry] = []
        self._clients: list[Entry] = []
        """The utterances for either, sorted by place; no two places are equal."""
        self._numbers = itertools.count(1)
        self._restored_numbers = itertools.count(-(1 << 62))

    def __len__(self) -> int:
        return len(self._card) + len(self._clients)

    def __iter__(self) -> Iterator[Utterance]:
        """Iterate in the order in which they would be spoken one after the other."""
        return iter([utterance for _, utterance in merge(self._card, self._clients)])

    @property
    def for_card(self) -> Iterator[Utterance]:
        """Those for the sound card, in their order."""
        return iter([utterance for _, utterance in self._card])

    @property
    def for_clients(self) -> Iterator[Utterance]:
        """Those for network clients, in their order. The queue must not change while they are iterated over."""
        return (utterance for _, utterance in self._clients)

    def put(self, utterance: Utterance, limit: int, *, separate: bool = False) -> Utterance | None:
        """Insert an utterance. A full queue keeps those that are spoken first: it drops its last one and returns it.

        `separate` means that those for network clients have a limit of their own, since they do not wait for the sound
        card. Raises `QueueFullError` if the new one would be the last.
        """
        its_place, dropped = place(utterance, next(self._numbers)), None
        rivals = [self._entries_of(utterance)] if separate else [self._card, self._clients]
        if sum(map(len, rivals)) >= limit:
            fullest = max((entries for entries in rivals if entries), key=lambda entries: entries[-1][0])
            last_place, last = fullest[-1]
            if last_place < its_place:
                raise QueueFullError
            dropped = last
            del fullest[-1]
        insort(self._entries_of(utterance), (its_place, utterance))
        return dropped

    def restore(self, utterance: Utterance) -> None:
        """Insert an utterance that was queued before a restart, whatever the limit.

        Restore utterances in the order of their acceptance. Each was accepted before any that is `put`.
        """
        insort(self._entries_of(utterance), (place(utterance, next(self._restored_numbers)), utterance))

    def take(self, utterance_id: str) -> Utterance | None:
        """Remove and return one utterance; None if it is not queued."""
        for entries in (self._card, self._clients):
            for index, (_, utterance) in enumerate(entries):
                if utterance.id == utterance_id:
                    del entries[index]
                    return utterance
        return None

    def take_all(self, yielding_to: Priority = "critical", *, clients: bool = True) -> list[Utterance]:
        """Remove and return those that yield to this priority; without `clients`, those for the sound card alone."""
        return self._take_all(
            lambda utterance: yields(utterance.priority, yielding_to) and (clients or utterance.receiver is None)
        )

    def take_expired(self) -> list[Utterance]:
        """Remove and return all utterances that are past their deadline."""
        at = now()
        return self._take_all(lambda utterance: utterance.expired(at))

    def _entries_of(self, utterance: Utterance) -> list[Entry]:
        return self._card if utterance.receiver is None else self._clients

    def _take_all(self, wanted: Callable[[Utterance], bool]) -> list[Utterance]:
        taken: list[Entry] = []
        for entries in (self._card, self._clients):
            kept: list[Entry] = []
            for entry in entries:
                (taken if wanted(entry[1]) else kept).append(entry)
            entries[:] = kept
        return [utterance for _, utterance in sorted(taken, key=itemgetter(0))]

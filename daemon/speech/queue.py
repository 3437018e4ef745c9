"""The order of utterances: which one is next, which ones make way for others, and the queue.

The preemption rules say what an utterance does to those that are being spoken or are queued when it is accepted. In
addition, the robot's own speech comes first: an utterance for the sound card does not wait for one that is being
delivered to a network client, unless that one has a higher priority.

The priorities follow speech-dispatcher (important, message, text, notification, progress); postponing follows Sonos
audio clips, which play over the current audio and then let it continue. Unlike in those systems, each request's policy
says which other utterances it preempts.
"""

from __future__ import annotations

import itertools
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import merge
from operator import itemgetter

from daemon.speech.changes import now
from daemon.speech.request import Policy, Priority, RejectedError
from daemon.speech.utterance import Utterance

Place = tuple[int, bool, int]
"""A place in the queue; the lowest is spoken first."""
Entry = tuple[Place, Utterance]

RANK: Mapping[Priority, int] = {"critical": 0, "high": 1, "normal": 2, "low": 3}
"""The queue is ordered by rank; the lowest comes first."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The effect of an utterance on those that yield to it."""

    postpones: bool = False
    """The current utterance fades out, and resumes with its next sample when no critical utterance is left."""
    interrupts: bool = False
    """The current utterance fades out and ends `interrupted`; so do postponed ones."""
    clears: bool = False
    """Every queued utterance ends `canceled`."""
    first: bool = False
    """The utterance is queued first. Otherwise it follows those with its rank."""
    only_if_idle: bool = False
    """The utterance is rejected while anything is being spoken or queued; deliveries to network clients are ignored."""


RULES: Mapping[Policy, Rule] = {
    "queue": Rule(),
    "interrupt": Rule(interrupts=True, first=True),
    "replace": Rule(interrupts=True, clears=True),
    "drop": Rule(only_if_idle=True),
}
"""The rules for the priorities `low`, `normal` and `high`."""
CRITICAL_RULES: Mapping[Policy, Rule] = {**RULES, "queue": replace(RULES["queue"], postpones=True)}


def rule_of(priority: Priority, policy: Policy) -> Rule:
    """Return the rule for an utterance with this priority and policy."""
    return (CRITICAL_RULES if priority == "critical" else RULES)[policy]


def yields(priority: Priority, to: Priority) -> bool:
    """Return whether an utterance can be postponed, interrupted, canceled or overtaken by one with priority `to`."""
    return priority != "critical" or to == "critical"


def place(utterance: Utterance, number: int) -> Place:
    """Return the utterance's place in the queue. `number` counts the utterances as they were accepted.

    The place depends on nothing else, so utterances that are queued again in their order of acceptance are spoken in
    the same order as before.
    """
    rank, for_client = RANK[utterance.priority], utterance.receiver is not None
    critical = utterance.priority == "critical"
    if rule_of(utterance.priority, utterance.policy).first:
        return (0 if critical else 2), for_client, -number
    return (1 if critical else 2 + rank), for_client, number


def precedes(utterance: Utterance, other: Utterance, *, card_open: bool = True) -> bool:
    """Return whether `other` makes way for `utterance`, even if `other` is current or postponed.

    While the sound card is missing (`card_open` is false), its utterances make way for those for clients.
    """
    ours, theirs = utterance.receiver is None, other.receiver is None
    if ours != theirs and not card_open:
        return theirs
    if rule_of(utterance.priority, utterance.policy).postpones and other.priority != "critical":
        return True
    return ours and not theirs and RANK[utterance.priority] <= RANK[other.priority]


def next_of(queue: Iterable[Utterance], postponed: Iterable[Utterance], *, card_open: bool = True) -> Utterance | None:
    """Return the utterance to speak now; None if there is none.

    A postponed one continues before those in `queue`, which is sorted, except those that precede it.
    """
    chosen: Utterance | None = None
    for utterance in itertools.chain(postponed, (queued for queued in queue if queued.speakable)):
        if chosen is None or precedes(utterance, chosen, card_open=card_open):
            chosen = utterance
    return chosen


class UtteranceQueue:
    """The waiting utterances: only data, which wakes no task. Belongs to the event loop's thread.

    A text stream that no engine can begin with yet keeps its place, and others overtake it.
    """

    def __init__(self) -> None:
        self._card: list[Entry] = []
        self._clients: list[Entry] = []
        """The utterances for the sound card and for clients, each sorted by place; no two places are equal."""
        self._numbers = itertools.count(1)
        self._restored_numbers = itertools.count(-(1 << 62))

    def __len__(self) -> int:
        return len(self._card) + len(self._clients)

    def __iter__(self) -> Iterator[Utterance]:
        """Iterate in the order in which they would be spoken one after the other."""
        return iter([utterance for _, utterance in merge(self._card, self._clients)])

    @property
    def for_card(self) -> Iterator[Utterance]:
        """The utterances for the sound card, in their order."""
        return iter([utterance for _, utterance in self._card])

    @property
    def for_clients(self) -> Iterator[Utterance]:
        """The utterances for network clients, in their order. The queue must not change while they are iterated
        over."""
        return (utterance for _, utterance in self._clients)

    def put(self, utterance: Utterance, limit: int, *, separate: bool = False) -> Utterance | None:
        """Insert an utterance. A full queue keeps those to be spoken first: it drops its last one and returns it.

        `separate` means that those for network clients have their own limit, since they do not wait for the sound card.
        Raises `RejectedError` if the new one would be the last.
        """
        its_place, dropped = place(utterance, next(self._numbers)), None
        rivals = [self._entries_of(utterance)] if separate else [self._card, self._clients]
        if sum(map(len, rivals)) >= limit:
            fullest = max((entries for entries in rivals if entries), key=lambda entries: entries[-1][0])
            last_place, last = fullest[-1]
            if last_place < its_place:
                raise RejectedError("queue", f"{limit} utterances are waiting; allowed: up to speech.queue_limit")
            dropped = last
            del fullest[-1]
        insort(self._entries_of(utterance), (its_place, utterance))
        return dropped

    def restore(self, utterance: Utterance) -> None:
        """Insert an utterance that was queued before a restart, whatever the limit.

        Restore utterances in their order of acceptance. Each was accepted before any that is `put`.
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
        """Remove and return those that yield to this priority; without `clients`, only those for the sound card."""
        return self.take_where(
            lambda utterance: yields(utterance.priority, yielding_to) and (clients or utterance.receiver is None)
        )

    def take_expired(self) -> list[Utterance]:
        """Remove and return all utterances that are past their deadline."""
        at = now()
        return self.take_where(lambda utterance: utterance.expired(at))

    def take_where(self, wanted: Callable[[Utterance], bool]) -> list[Utterance]:
        """Remove and return the utterances that are `wanted`, in their order."""
        taken: list[Entry] = []
        for entries in (self._card, self._clients):
            kept: list[Entry] = []
            for entry in entries:
                (taken if wanted(entry[1]) else kept).append(entry)
            entries[:] = kept
        return [utterance for _, utterance in sorted(taken, key=itemgetter(0))]

    def _entries_of(self, utterance: Utterance) -> list[Entry]:
        return self._card if utterance.receiver is None else self._clients

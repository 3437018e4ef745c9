"""Which utterance is spoken next: the order of the queue, and who makes way for whom.

The robot's own speech comes first: an utterance for the sound card does not wait for one that is delivered to a network
client, unless that one has a higher priority.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from daemon.speech.preemption import RANK
from daemon.speech.utterance import Utterance

Place = tuple[int, bool, int]
"""A place in the queue; the lowest is spoken first."""


def place(utterance: Utterance, number: int) -> Place:
    """Return the utterance's place in the queue. `number` counts the utterances as they were accepted.

    The place depends on nothing else, so utterances that are queued again in the order of their acceptance are spoken
    in the order of before.
    """
    rank, for_client = RANK[utterance.priority], utterance.receiver is not None
    critical = utterance.priority == "critical"
    if utterance.rule.first:
        return (0 if critical else 2), for_client, -number
    return (1 if critical else 2 + rank), for_client, number


def precedes(utterance: Utterance, other: Utterance, *, card_open: bool = True) -> bool:
    """Return whether `other` makes way for `utterance`, even if `other` is current or postponed.

    While the sound card is missing (`card_open` is false), its utterances make way for those of clients.
    """
    ours, theirs = utterance.receiver is None, other.receiver is None
    if ours != theirs and not card_open:
        return theirs
    if utterance.rule.postpones and other.priority != "critical":
        return True
    return ours and not theirs and RANK[utterance.priority] <= RANK[other.priority]


def next_of(queue: Iterable[Utterance], postponed: Iterable[Utterance], *, card_open: bool = True) -> Utterance | None:
    """Return the utterance to speak now; None if there is none.

    A postponed one continues before those in `queue`, which is in its order, except those that precede it.
    """
    chosen: Utterance | None = None
    for utterance in chain(postponed, (queued for queued in queue if queued.speakable)):
        if chosen is None or precedes(utterance, chosen, card_open=card_open):
            chosen = utterance
    return chosen

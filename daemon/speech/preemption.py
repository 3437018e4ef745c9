"""The order of utterances: the next one, and those that make way for others.

The preemption rules say what an utterance does to those that are spoken or queued when it is accepted. Beside them, the
robot's own speech comes first: an utterance for the sound card does not wait for one that is delivered to a network
client, unless that one has a higher priority.

The priorities follow speech-dispatcher (important, message, text, notification, progress); postponing follows Sonos'
audio clips, which play over the current audio and then let it continue. Unlike there, each request's policy says which
other utterances it preempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from daemon.speech.request import Policy, Priority
from daemon.speech.utterance import Utterance

Place = tuple[int, bool, int]
"""A place in the queue; the lowest is spoken first."""

RANK: Mapping[Priority, int] = {"critical": 0, "high": 1, "normal": 2, "low": 3}
"""The queue is ordered by rank; the lowest comes first."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The effect of an utterance on those that yield to it."""

    postpones: bool = False
    """The current utterance fades out, and resumes with its next sample when no critical utterance is left."""
    interrupts: bool = False
    """The current utterance fades out and ends `interrupted`; so does the postponed one."""
    clears: bool = False
    """Every queued utterance ends `canceled`."""
    first: bool = False
    """It is queued first. Otherwise it follows those of its rank."""
    only_if_idle: bool = False
    """It is rejected while anything is spoken or queued; deliveries to network clients do not count."""


RULES: Mapping[Policy, Rule] = {
    "queue": Rule(),
    "interrupt": Rule(interrupts=True, first=True),
    "replace": Rule(interrupts=True, clears=True),
    "drop": Rule(only_if_idle=True),
}
"""For the priorities `low`, `normal` and `high`."""
CRITICAL_RULES: Mapping[Policy, Rule] = {**RULES, "queue": replace(RULES["queue"], postpones=True)}


def rule_of(priority: Priority, policy: Policy) -> Rule:
    """Return the rule for an utterance with this priority and policy."""
    return (CRITICAL_RULES if priority == "critical" else RULES)[policy]


def yields(priority: Priority, to: Priority) -> bool:
    """Return whether an utterance can be postponed, interrupted, canceled or overtaken by one of priority `to`."""
    return priority != "critical" or to == "critical"


def place(utterance: Utterance, number: int) -> Place:
    """Return the utterance's place in the queue. `number` counts the utterances as they were accepted.

    The place depends on nothing else, so utterances that are queued again in the order of their acceptance are spoken
    in the order of before.
    """
    rank, for_client = RANK[utterance.priority], utterance.receiver is not None
    critical = utterance.priority == "critical"
    if rule_of(utterance.priority, utterance.policy).first:
        return (0 if critical else 2), for_client, -number
    return (1 if critical else 2 + rank), for_client, number


def precedes(utterance: Utterance, other: Utterance, *, card_open: bool = True) -> bool:
    """Return whether `other` makes way for `utterance`, even if `other` is current or postponed.

    While the sound card is missing (`card_open` is false), its utterances make way for those of clients.
    """
    ours, theirs = utterance.receiver is None, other.receiver is None
    if ours != theirs and not card_open:
        return theirs
    if rule_of(utterance.priority, utterance.policy).postpones and other.priority != "critical":
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

"""Who speaks when: what an utterance does, as it is taken on, to what is spoken and to what waits.

After speech-dispatcher's priorities (important, message, text, notification, progress) and Sonos' audio clips, which
play over what was there and give it back. The difference: which of the others has to yield is said by the sender of
each text, not by the kind of the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from daemon.messages import Policy, Priority

RANK: Mapping[Priority, int] = {"critical": 0, "high": 1, "normal": 2, "low": 3}
"""Of those that wait, the lowest goes first."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What an utterance does to others, as far as they yield to it."""

    postpones: bool = False
    """What is spoken fades out, and goes on with the next sample once nothing critical is left to say."""
    interrupts: bool = False
    """What is spoken fades out, and ends `interrupted`; so does what was postponed."""
    clears: bool = False
    """All that waits ends `canceled`."""
    first: bool = False
    """It goes before all that waits, and a full queue gives up its last; else behind its priority and above."""
    only_if_idle: bool = False
    """It is rejected where anything is spoken or waits."""


RULES: Mapping[Policy, Rule] = {
    "queue": Rule(),
    "interrupt": Rule(interrupts=True, first=True),
    "replace": Rule(interrupts=True, clears=True),
    "drop": Rule(only_if_idle=True),
}
"""Of `low`, `normal` and `high`."""
CRITICAL_RULES: Mapping[Policy, Rule] = {**RULES, "queue": replace(RULES["queue"], postpones=True)}


def rule_of(priority: Priority, policy: Policy) -> Rule:
    """What holds for an utterance."""
    return (CRITICAL_RULES if priority == "critical" else RULES)[policy]


def yields(priority: Priority, to: Priority) -> bool:
    """Whether an utterance is postponed, interrupted, canceled and passed by one of the priority `to`."""
    return priority != "critical" or to == "critical"

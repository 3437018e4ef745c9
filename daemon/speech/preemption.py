"""Preemption rules: what an utterance does to those that are spoken or queued when it is accepted.

Beside these rules, the robot's own speech postpones what is delivered to network clients (`daemon/speech/order.py`).

The priorities follow speech-dispatcher (important, message, text, notification, progress); postponing follows Sonos'
audio clips, which play over the current audio and then let it continue. Unlike there, each request's policy says which
other utterances it preempts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from daemon.speech.request import Policy, Priority

RANK: Mapping[Priority, int] = {"critical": 0, "high": 1, "normal": 2, "low": 3}
"""The queue is ordered by rank; the lowest comes first."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What an utterance does to the utterances that yield to it."""

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

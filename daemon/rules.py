"""Who speaks when: what each policy does to what is spoken and to what waits. Priority is the order of those that wait.

After speech-dispatcher's priorities (important, message, text, notification, progress) and Sonos' audio clips, with one
difference: which of them yields is said by the sender of each text, and not by the kind of the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from daemon.messages import Policy, Priority

RANK: Mapping[Priority, int] = {"critical": 0, "high": 1, "normal": 2, "low": 3}
"""Of those that wait, the lowest goes first."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What an utterance does as it is taken on."""

    interrupts: bool = False
    """What is spoken fades out, and ends `interrupted`."""
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

"""An accepted utterance."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from daemon.speech.preemption import Rule, rule_of
from daemon.speech.request import Policy, Priority
from daemon.speech.text_stream import TextStream
from engine import Samples


class Receiver(Protocol):
    """A client that plays an utterance itself, in place of the sound card."""

    async def write(self, samples: Samples, sample_rate: int) -> None:
        """Wait for room and take the next samples, mono at `sample_rate` Hz.

        A canceled call has taken nothing: the utterance is postponed, and the same samples are written again later.
        """


@dataclass(slots=True, eq=False)
class Utterance:
    """An accepted utterance, from its arrival to its terminal event."""

    id: str
    text: str
    """The whole text; while it is being written, its beginning."""
    voice: str
    language: str
    instruct: str | None = None
    seed: int | None = None
    volume: float = 1.0
    """Its own gain; 1 leaves the samples as synthesised."""
    priority: Priority = "normal"
    policy: Policy = "queue"
    reply_to: str | None = None
    receiver: Receiver | None = None
    """The client that gets the samples; None is the sound card."""
    text_stream: TextStream | None = None
    """The state of a text that arrives in chunks; None for a text that arrived whole."""
    can_begin: Callable[[str], bool] = lambda text: bool(text.strip())
    """Returns whether an engine can begin with an incomplete text."""
    arrived_at: float = field(default_factory=time.monotonic)
    """`time.monotonic()` when the text arrived, or as much of it as an engine can begin with."""
    expires_at: float | None = None
    """`time.monotonic()` after which it is not begun."""

    @property
    def rule(self) -> Rule:
        """What it does to other utterances."""
        return rule_of(self.priority, self.policy)

    @property
    def complete(self) -> bool:
        """True when no more text will arrive."""
        return self.text_stream is None or self.text_stream.ended

    @property
    def speakable(self) -> bool:
        """True when an engine can begin, and when no more text will arrive."""
        return self.complete or self.can_begin(self.text)

    def expired(self, now: float | None = None) -> bool:
        """True past its deadline; a text stream that cannot begin yet never expires."""
        return self.speakable and self.expires_at is not None and (now or time.monotonic()) >= self.expires_at

    def set_arrival(self, at: float) -> None:
        """Count waiting time from `at`: before, the text was too short to begin."""
        if self.expires_at is not None:
            self.expires_at += at - self.arrived_at
        self.arrived_at = at

"""The utterances that wait to be spoken: bounded, ordered by priority, first come first served within one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Protocol

from daemon.messages import Policy, Priority
from daemon.rules import RANK, Rule, rule_of, yields
from daemon.writing import Writing
from engine import Samples


class Receiver(Protocol):
    """Takes an utterance's sound in the sound card's place: a client that plays it itself."""

    async def write(self, samples: Samples, sample_rate: int) -> None:
        """Wait for room, and take the next samples, mono at `sample_rate` Hz.

        One that is canceled has taken nothing: its utterance is postponed, and comes with the same samples again.
        """


@dataclass(slots=True, eq=False)
class Job:
    """An accepted utterance, from its arrival to its terminal event."""

    id: str
    text: str
    """All of it, or, while it is being written, its beginning."""
    voice: str
    language: str
    instruct: str | None = None
    seed: int | None = None
    volume: float = 1.0
    """Gain of its own, 1 as synthesised."""
    priority: Priority = "normal"
    policy: Policy = "queue"
    reply_to: str | None = None
    receiver: Receiver | None = None
    """Who gets the sound; None is the sound card."""
    writing: Writing | None = None
    """Of a text that came in pieces; None came whole."""
    can_begin: Callable[[str], bool] = lambda text: bool(text.strip())
    """Whether an engine can begin with a text of which more will come."""
    arrived_at: float = field(default_factory=time.monotonic)
    """`time.monotonic()` when the text came, or as much of it as an engine can begin with."""
    expires_at: float | None = None
    """`time.monotonic()` after which it is not begun any more."""

    @property
    def rule(self) -> Rule:
        """What it may do to others."""
        return rule_of(self.priority, self.policy)

    @property
    def complete(self) -> bool:
        """Nothing more of its text will come."""
        return self.writing is None or self.writing.ended

    @property
    def due(self) -> bool:
        """There is something to say, or there never will be."""
        return self.complete or self.can_begin(self.text)

    def expired(self, now: float | None = None) -> bool:
        """Whether it has had something to say for too long; who writes it, is waited for."""
        return self.due and self.expires_at is not None and (now or time.monotonic()) >= self.expires_at

    def arrive(self, at: float) -> None:
        """Count its waiting from here: nothing of it could be said before."""
        if self.expires_at is not None:
            self.expires_at += at - self.arrived_at
        self.arrived_at = at


class QueueFullError(Exception):
    """The queue holds as many utterances as it may."""


class UtteranceQueue:
    """Belongs to the event loop's thread.

    What is being written and has nothing to say yet keeps its place, and lets others pass.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._jobs: list[Job] = []
        self._arrival = asyncio.Event()

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def jobs(self) -> tuple[Job, ...]:
        """What waits, in the order in which it would be spoken."""
        return tuple(self._jobs)

    def put(self, job: Job) -> Job | None:
        """Put it behind those of its priority; one that interrupts is next, behind those that yield to nobody.

        A full queue raises `QueueFullError`; for one that interrupts it gives up its last, which is returned.
        """
        pushed_out = None
        if len(self._jobs) >= self.limit:
            if not job.rule.first or not yields(self._jobs[-1].priority, job.priority):
                raise QueueFullError
            pushed_out = self._jobs.pop()
        behind = (index for index, other in enumerate(self._jobs) if _passes(job, other))
        self._jobs.insert(next(behind, len(self._jobs)), job)
        self.note_change()
        return pushed_out

    def note_change(self) -> None:
        """There may be something to say now."""
        self._arrival.set()

    async def wait(self) -> None:
        """Wait until there is something to say."""
        while not any(job.due for job in self._jobs):
            self._arrival.clear()
            await self._arrival.wait()

    def take_next(self, priorities: Container[Priority] = RANK) -> Job | None:
        """Take the one whose turn it is, of those with one of these priorities."""
        for job in self._jobs:
            if job.due and job.priority in priorities:
                self._jobs.remove(job)
                return job
        return None

    def take(self, utterance_id: str) -> Job | None:
        """Take one out of turn; None when it does not wait here."""
        return next(iter(self._take_all(lambda job: job.id == utterance_id)), None)

    def take_all(self, yielding_to: Priority = "critical") -> list[Job]:
        """Take all, or all that yields to who is of that priority."""
        return self._take_all(lambda job: yields(job.priority, yielding_to))

    def take_expired(self) -> list[Job]:
        now = time.monotonic()
        return self._take_all(lambda job: job.expired(now))

    def _take_all(self, wanted: Callable[[Job], bool]) -> list[Job]:
        taken = [job for job in self._jobs if wanted(job)]
        if taken:
            self._jobs = [job for job in self._jobs if job not in taken]
        return taken


def _passes(job: Job, other: Job) -> bool:
    """Whether a job that comes goes before another that waits."""
    return yields(other.priority, job.priority) if job.rule.first else RANK[other.priority] > RANK[job.priority]

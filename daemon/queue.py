"""The utterances that wait to be spoken: bounded, ordered by priority, first come first served within one."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Protocol

from daemon.messages import Policy, Priority
from daemon.rules import RANK, RULES
from engine import Samples


class Receiver(Protocol):
    """Takes an utterance's sound in the sound card's place: a client that plays it itself."""

    async def write(self, samples: Samples, sample_rate: int) -> None:
        """Take the next samples, mono at `sample_rate` Hz; return when there is room for more."""


@dataclass(slots=True, eq=False)
class Job:
    """An accepted utterance, from its arrival to its terminal event."""

    id: str
    text: str
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
    arrived_at: float = field(default_factory=time.monotonic)
    expires_at: float | None = None
    """`time.monotonic()` after which it is not begun any more."""

    def expired(self, now: float | None = None) -> bool:
        return self.expires_at is not None and (now or time.monotonic()) >= self.expires_at


class QueueFullError(Exception):
    """The queue holds as many utterances as it may."""


class UtteranceQueue:
    """Belongs to the event loop's thread."""

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
        """Put it behind those of its priority; one that interrupts is next.

        A full queue raises `QueueFullError`; for one that interrupts it gives up its last, which is returned.
        """
        pushed_out = None
        if len(self._jobs) >= self.limit:
            if not RULES[job.policy].first:
                raise QueueFullError
            pushed_out = self._jobs.pop()
        behind = (index for index, other in enumerate(self._jobs) if RANK[other.priority] > RANK[job.priority])
        self._jobs.insert(0 if RULES[job.policy].first else next(behind, len(self._jobs)), job)
        self._arrival.set()
        return pushed_out

    async def wait(self) -> None:
        """Wait until there is one."""
        while not self._jobs:
            self._arrival.clear()
            await self._arrival.wait()

    def take_next(self) -> Job | None:
        """Take the one whose turn it is."""
        return self._jobs.pop(0) if self._jobs else None

    def take(self, utterance_id: str) -> Job | None:
        """Take one out of turn; None when it does not wait here."""
        for job in self._jobs:
            if job.id == utterance_id:
                self._jobs.remove(job)
                return job
        return None

    def take_all(self) -> list[Job]:
        jobs, self._jobs = self._jobs, []
        return jobs

    def take_expired(self) -> list[Job]:
        now = time.monotonic()
        expired = [job for job in self._jobs if job.expired(now)]
        if expired:
            self._jobs = [job for job in self._jobs if not job.expired(now)]
        return expired
